#include "parser/rows/row_formats.h"

#include "core/text.h"
#include "parser/rows/arrow/arrow.h"
#include "parser/rows/litdata.h"
#include "parser/rows/mds.h"
#include "parser/rows/megatron.h"
#include "parser/rows/npy_rows.h"
#include "parser/rows/parquet.h"
#include "parser/rows/text_rows.h"
#include "parser/rows/tokens.h"
#include "parser/rows/webdataset.h"

#include <string.h>

static const struct td_row_format *const formats[] = {
    &td_row_format_arrow,  &td_row_format_csv,        &td_row_format_jsonl, &td_row_format_litdata,
    &td_row_format_mds,    &td_row_format_megatron,   &td_row_format_npy,   &td_row_format_parquet,
    &td_row_format_tokens, &td_row_format_webdataset,
};

enum { FORMATS = sizeof formats / sizeof *formats };

const struct td_row_format *td_row_format_at(size_t i)
{
    return i < FORMATS ? formats[i] : NULL;
}

const struct td_row_format *td_row_format_named(struct td_text name)
{
    for (size_t i = 0; i < FORMATS; i++)
        if (td_text_equals(name, formats[i]->name))
            return formats[i];
    return NULL;
}

const struct td_row_format *td_row_format_of(const char *file_name)
{
    for (size_t i = 0; i < FORMATS; i++)
        for (const char *const *extension = formats[i]->extensions; *extension != NULL; extension++)
            if (td_has_extension_any_case(file_name, *extension))
                return formats[i];
    return NULL;
}
