/* For tests of HDF5 that have no torch archives in it. */
#include "parser/torch.h"

bool td_torch_parse_records(const struct td_torch_records *records, const struct td_limits *limits,
                            struct td_manifest *manifest, struct td_error *err)
{
    (void)records;
    (void)limits;
    (void)manifest;
    return td_error_set(err, TD_INTERNAL, "this test has no torch archives");
}
