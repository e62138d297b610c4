/* Requests that are bound to a manifest: a client that has computed parts of tensors from a manifest names the
 * manifest's tag, and gets an error in place of bytes of another checkpoint. */
#ifndef TD_API_NATIVE_MANIFEST_BINDING_H
#define TD_API_NATIVE_MANIFEST_BINDING_H

#include "api/call.h"

/* Checks that the checkpoint's manifest has this tag (its member "etag"), or had it before the files were hashed.
 * tag NULL: the request is not bound. Returns false after it answered 412. */
bool td_native_check_manifest(const struct td_call *call, const struct td_checkpoint *checkpoint, const char *tag);

#endif
