#include "server/mhd.h"

#include <dlfcn.h>
#include <string.h>

struct td_mhd td_mhd;

/* ISO C has no cast from void * to a function. */
static bool find(void *library, const char *name, void *out, size_t size)
{
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, size);
    return symbol != NULL;
}

bool td_mhd_load(struct td_error *err)
{
    if (td_mhd.start_daemon != NULL)
        return true;
    void *library = dlopen(TD_MHD_SONAME, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return td_error_set(err, TD_FAILED_PRECONDITION, "libmicrohttpd is needed to serve: %s", dlerror());
    struct td_mhd found;
    bool ok = true;
#define FIND(name) ok = find(library, "MHD_" #name, &found.name, sizeof found.name) && ok;
    TD_MHD_FUNCTIONS(FIND)
#undef FIND
    if (!ok) {
        (void)dlclose(library);
        return td_error_set(err, TD_FAILED_PRECONDITION, TD_MHD_SONAME " is too old: 0.9.75 or newer is needed");
    }
    td_mhd = found;
    return true;
}
