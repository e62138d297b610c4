#include "api/oci/oci_handlers.h"
#include "api/oci/oci_make.h"
#include "api/oci/oci_ollama.h"

#include <string.h>

/* Answers a manifest by its digest. */
static void answer_digest(struct td_oci_call *oci)
{
    struct td_text hex;
    struct td_made_documents *made;
    const struct td_made_document *document;
    struct td_error err = TD_ERROR_INIT;
    if (!td_oci_read_digest(oci, &hex))
        return;
    if (td_oci_find_document(oci, true, hex, &made, &document, &err))
        td_oci_answer_document(oci, document, true);
    else
        (void)td_oci_fail_error(oci, &err, "MANIFEST_UNKNOWN");
    td_made_documents_unref(made);
}

/* Returns whether the answer to this tag depends on who asks: whether it may be a GGUF file. */
static bool varies(const struct td_oci_target *target)
{
    return target->form == TD_OCI_GGUF || target->is_alias;
}

/* Sets *target to the GGUF file that llama.cpp, which takes shards, means by the tag "latest", where the tag does not
 * stand for it. Errors as td_oci_targets; TD_NOT_FOUND when there is none. */
static bool prefer_gguf(struct td_oci_call *oci, struct td_oci_target *target, struct td_error *err)
{
    struct td_oci_target *targets;
    size_t count;
    if (!target->is_alias)
        return true;
    if (!td_oci_targets(oci, &targets, &count, err))
        return false;
    const struct td_oci_target *gguf = td_oci_default_gguf(targets, count, true);
    if (gguf == NULL)
        return td_error_set(err, TD_NOT_FOUND, "the model has no GGUF file, which is what llama.cpp takes");
    *target = *gguf;
    return true;
}

static void answer_llama_cpp(struct td_oci_call *oci, const struct td_oci_target *target)
{
    struct td_buffer text;
    td_buffer_init(&text);
    td_oci_llama_cpp_write(oci, target, &text);
    td_oci_answer_text(oci, &text, "application/json");
    td_buffer_fini(&text);
}

/* Finds what the tag stands for, to whoever asks. Sets *depends to whether that depends on who asks. */
static bool find(struct td_oci_call *oci, struct td_oci_target *target, bool *depends, struct td_error *err)
{
    bool ok = td_oci_target_find(oci, oci->path.reference, target, err);
    *depends = ok && varies(target);
    return ok && (!td_oci_is_llama_cpp(oci->call) || prefer_gguf(oci, target, err));
}

/* Answers what a tag stands for. */
static void answer_tag(struct td_oci_call *oci)
{
    struct td_oci_target target;
    struct td_made_documents *made = NULL;
    struct td_error err = TD_ERROR_INIT;
    bool depends;
    bool ok = find(oci, &target, &depends, &err);
    if (ok && target.form == TD_OCI_GGUF && td_oci_is_llama_cpp(oci->call))
        answer_llama_cpp(oci, &target);
    else if (ok && td_oci_make(oci, &target, &made, &err))
        td_oci_answer_document(oci, &made->items[made->count - 1], false);
    else
        (void)td_oci_fail_error(oci, &err, "MANIFEST_UNKNOWN");
    if (depends)
        td_response_add_header_text(oci->call->response, "Vary", TD_TEXT("User-Agent"));
    td_made_documents_unref(made);
}

void td_oci_answer_manifest(struct td_oci_call *oci)
{
    struct td_text reference = oci->path.reference;
    if (memchr(reference.p, ':', reference.len) != NULL)
        answer_digest(oci);
    else
        answer_tag(oci);
}
