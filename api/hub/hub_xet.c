/* Xet's upload: clients send xorbs, then shards that say how files are made of their chunks. Each file becomes a blob;
 * its SHA-256 says whether it is right, so no hash of Xet is computed. Then comes the ordinary commit.
 *
 * Every write token has another URL, with a session in it: clients remember for weeks which xorbs an URL has, and these
 * go here after --upload-expires. */
#include "api/call/publish_sink.h"
#include "api/hub/hub_writers.h"
#include "api/hub/xet_shard.h"
#include "api/hub/xet_xorb.h"
#include "catalog/publish/publish_xorbs.h"
#include "core/clock.h"
#include "core/digits.h"
#include "core/file_io.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    SESSION_BYTES = 16,
    SHARD_BYTES = 64 * 1024 * 1024,
    TABLE_BYTES = (TD_XET_XORB_CHUNKS + 1) * 4,
    NAME_BYTES = NAME_MAX + 2 * SESSION_BYTES + TD_XET_HASH_TEXT_BYTES + 4,
};

#define TOKEN_S 3600 /* clients ask for another token after so long */

/* ---- the token ------------------------------------------------------------------------------------------- */

/* Returns the text of the caller's token, which is good for Xet's requests, too; "none" without tokens. */
static struct td_text token_of(const struct td_call *call)
{
    const struct td_header *field = td_request_single_header(call->request, "Authorization");
    const size_t scheme = strlen("Bearer ");
    if (call->caller.tokens == NULL || field == NULL || field->value.len <= scheme)
        return TD_TEXT("none");
    return td_text_trim(td_text_skip(field->value, scheme), " ");
}

void td_hub_give_xet_token(struct td_hub_write *write)
{
    uint8_t random[SESSION_BYTES];
    char session[2 * SESSION_BYTES + 1];
    struct td_buffer url, json;
    struct td_document builder;
    const struct td_hub_call *hub = &write->hub;
    struct td_text host = td_request_host(hub->call->request);
    if (!td_hub_write_begin(write) || !td_hub_write_has_repo(write))
        return;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        (void)td_hub_fail(hub, 503, NULL, "no random numbers");
        return;
    }
    td_hex_write(random, sizeof random, session);
    td_buffer_init(&url);
    td_buffer_init(&json);
    td_buffer_printf(&url, "%s://%.*s/api/%s/", td_request_scheme(hub->call->request), (int)host.len, host.p,
                     hub->as_dataset ? "datasets" : "models");
    td_uri_encode(&url, hub->id, true);
    td_buffer_printf(&url, "/xet/%s", session);
    td_document_init(&builder, &json);
    td_document_begin_object(&builder, NULL);
    td_document_add_text(&builder, "accessToken", token_of(hub->call));
    td_document_add_u64(&builder, "exp", (uint64_t)td_wall_now().seconds + TOKEN_S);
    td_document_add_text(&builder, "casUrl", td_buffer_text(&url));
    td_document_end(&builder);
    json.failed = json.failed || url.failed;
    td_buffer_fini(&url);
    td_hub_write_answer(write, &json);
}

/* ---- paths ----------------------------------------------------------------------------------------------- */

/* A path of a session. */
struct xet_path {
    struct td_text session;
    uint8_t xorb[TD_XET_HASH_BYTES];
    bool is_shard; /* else a xorb */
};

/* Splits "SESSION/v1/xorbs/default/HASH" or "SESSION/v1/shards". Returns false for other paths, which clients try. */
static bool split(struct td_text path, struct xet_path *out)
{
    uint8_t session[SESSION_BYTES];
    const struct td_text xorbs = TD_TEXT("v1/xorbs/default/");
    out->session = td_text_take_until(&path, '/');
    out->is_shard = td_text_equals(path, "v1/shards");
    return td_hex_read_bytes(out->session, session, sizeof session) &&
           (out->is_shard ||
            (td_text_begins(path, xorbs) && td_xet_hash_read(td_text_skip(path, xorbs.len), out->xorb)));
}

/* Writes the name of a xorb of this session; for xorb NULL what the names of all of them begin with. */
static void name_xorb(const struct td_hub_write *write, struct td_text session, const uint8_t *xorb,
                      char name[NAME_BYTES])
{
    char hash[TD_XET_HASH_TEXT_BYTES] = "";
    if (xorb != NULL)
        td_xet_hash_write(xorb, hash);
    (void)snprintf(name, NAME_BYTES, "%s/%.*s/%s", write->name.folder, (int)session.len, session.p, hash);
}

/* ---- xorbs ----------------------------------------------------------------------------------------------- */

struct xorb_sink {
    struct td_body_sink sink; /* first: on the way back a sink is one of these */
    struct td_publish_xorb_part *part;
    struct td_xet_finder finder;
    struct td_error err;
    uint32_t begins[TD_XET_XORB_CHUNKS + 1];
};

static struct xorb_sink *of(struct td_body_sink *sink)
{
    return (struct xorb_sink *)(void *)sink;
}

static bool write_sink(struct td_body_sink *sink, const void *bytes, size_t len)
{
    struct xorb_sink *self = of(sink);
    return td_xet_finder_add(&self->finder, bytes, len, &self->err) &&
           td_publish_xorb_write(self->part, bytes, len, &self->err);
}

static void release_sink(struct td_body_sink *sink)
{
    td_publish_xorb_abandon(of(sink)->part);
    free(sink);
}

static const struct td_body_sink_ops ops = {.write = write_sink, .release = release_sink};

static struct td_body_sink *begin_xorb(struct td_hub_write *write)
{
    struct td_error err = TD_ERROR_INIT;
    const struct td_call *call = write->hub.call;
    uint64_t bytes = call->request->body_bytes;
    if (bytes > TD_XET_XORB_BYTES) { /* also when it is not known */
        (void)td_hub_fail(&write->hub, bytes == TD_BODY_LENGTH_UNKNOWN ? 411 : 413, NULL,
                          "a xorb comes with its Content-Length, and has at most %d bytes", TD_XET_XORB_BYTES);
        return NULL;
    }
    struct xorb_sink *self = calloc(1, sizeof *self);
    if (self == NULL) {
        (void)td_call_no_memory(call);
        return NULL;
    }
    self->sink.ops = &ops;
    self->finder.begins = self->begins;
    td_error_init(&self->err);
    if (td_publish_xorb_begin(call->api->publish, td_call_client(call), bytes + TABLE_BYTES, &self->part, &err))
        return &self->sink;
    free(self);
    td_publishing_fail(call, &err, 500);
    return NULL;
}

static void end_xorb(struct td_hub_write *write, const struct xet_path *path)
{
    char name[NAME_BYTES];
    const struct td_call *call = write->hub.call;
    struct xorb_sink *self = of(call->request->sink);
    name_xorb(write, path->session, path->xorb, name);
    bool ok = call->request->is_whole && td_xet_finder_end(&self->finder, &self->err);
    if (ok) {
        struct td_publish_xorb_part *part = self->part;
        self->part = NULL;
        ok = td_publish_xorb_end(part, name, self->begins, self->finder.count + 1, &self->err);
    }
    if (ok)
        td_hub_write_answer_text(write, "{\"was_inserted\":true}");
    else
        td_publishing_fail(call, &self->err, 422);
}

/* ---- shards ---------------------------------------------------------------------------------------------- */

/* Puts a file together. */
struct building {
    struct td_hub_write *write;
    struct td_text session;
    struct td_publish_stream *stream;
    int fd; /* of the xorb; -1: none is open */
    uint8_t xorb[TD_XET_HASH_BYTES];
    uint64_t table_at;
    size_t count; /* of numbers in its table: one more than chunks */
    struct td_error *err;
    struct td_xet_unpacker unpacker;
    uint8_t data[TD_XET_HEAD_BYTES + TD_XET_STORED_BYTES], chunk[TD_XET_CHUNK_BYTES];
};

static bool open_xorb(struct building *b, const uint8_t xorb[TD_XET_HASH_BYTES])
{
    char name[NAME_BYTES];
    if (b->fd >= 0 && memcmp(b->xorb, xorb, sizeof b->xorb) == 0)
        return true;
    if (b->fd >= 0)
        (void)close(b->fd);
    name_xorb(b->write, b->session, xorb, name);
    memcpy(b->xorb, xorb, sizeof b->xorb);
    b->fd = td_publish_xorb_open(b->write->hub.call->api->publish, name, &b->table_at, &b->count);
    return b->fd >= 0 ||
           td_error_set(b->err, TD_INVALID_ARGUMENT, "the shard names the xorb %s, which was not sent for this upload",
                        strrchr(name, '/') + 1);
}

static bool read_all(struct building *b, void *out, size_t len, uint64_t at)
{
    return td_read_at(b->fd, out, len, at) == (ssize_t)len ||
           td_error_set(b->err, TD_IO, "a xorb cannot be read again");
}

/* Writes chunk i of the open xorb to the stream. Adds its length to *bytes. */
static bool add_chunk(struct building *b, size_t i, uint64_t *bytes)
{
    uint32_t bounds[2];
    struct td_xet_head head;
    if (!read_all(b, bounds, sizeof bounds, b->table_at + i * sizeof *bounds))
        return false;
    size_t len = bounds[1] - bounds[0];
    if (bounds[1] < bounds[0] || len < TD_XET_HEAD_BYTES || len > sizeof b->data)
        return td_error_set(b->err, TD_IO, "a xorb was changed");
    if (!read_all(b, b->data, len, bounds[0]) || !td_xet_head_read(b->data, &head, b->err))
        return false;
    if (head.stored_bytes != len - TD_XET_HEAD_BYTES)
        return td_error_set(b->err, TD_IO, "a xorb was changed");
    *bytes += head.chunk_bytes;
    return td_xet_chunk_read(&b->unpacker, &head, b->data + TD_XET_HEAD_BYTES, b->chunk, b->err) &&
           td_publish_stream_write(b->stream, b->chunk, head.chunk_bytes, b->err);
}

static bool add_term(struct building *b, const struct td_xet_term *term)
{
    uint64_t bytes = 0;
    if (!open_xorb(b, term->xorb))
        return false;
    if (term->end >= b->count)
        return td_error_set(b->err, TD_INVALID_ARGUMENT, "the shard names chunk %" PRIu32 " of a xorb that has %zu",
                            term->end - 1, b->count - 1);
    for (size_t i = term->first; i < term->end; i++)
        if (!add_chunk(b, i, &bytes))
            return false;
    return bytes == term->bytes ||
           td_error_set(b->err, TD_INVALID_ARGUMENT, "a term of the shard has %" PRIu32 " bytes, its chunks %" PRIu64,
                        term->bytes, bytes);
}

/* Returns whether the client still waits for the answer. */
static bool is_awaited(struct building *b)
{
    return !td_call_over(b->write->hub.call) || td_error_set(b->err, TD_UNAVAILABLE, "the client has gone");
}

static bool add_terms(struct building *b, const struct td_xet_file *file)
{
    for (size_t i = 0; i < file->term_count; i++) {
        struct td_xet_term term = td_xet_file_term(file, i);
        if (!is_awaited(b) || !add_term(b, &term))
            return false;
    }
    return true;
}

/* Returns whether the blob is here already. */
static bool is_here(struct building *b, const uint8_t sha256[TD_SHA256_BYTES])
{
    return td_publish_has_blob(b->write->hub.call->api->publish, &b->write->name, sha256);
}

/* Writes the name of the object that holds the SHA-256 of a file that comes without one: that of its terms, behind a
 * letter that no hash has. The same terms are the same bytes, because no xorb of a session changes. */
static void name_sum(const struct building *b, const struct td_xet_file *file, char name[NAME_BYTES])
{
    uint8_t terms[TD_SHA256_BYTES];
    char hex[TD_SHA256_TEXT_BYTES];
    char session[NAME_BYTES];
    td_sha256(file->terms.p, file->terms.len, terms);
    td_hex_write(terms, sizeof terms, hex);
    name_xorb(b->write, b->session, NULL, session);
    (void)snprintf(name, NAME_BYTES, "%.*sx%s", (int)(NAME_BYTES - sizeof hex - 1), session, hex);
}

/* Finds the SHA-256 of a file that was built before in this session. Returns false when there is none. */
static bool find_sum(struct building *b, const char *name, uint8_t sha256[TD_SHA256_BYTES])
{
    uint64_t end;
    size_t count;
    int fd = td_publish_xorb_open(b->write->hub.call->api->publish, name, &end, &count);
    bool ok = fd >= 0 && td_read_at(fd, sha256, TD_SHA256_BYTES, 0) == TD_SHA256_BYTES;
    if (fd >= 0)
        (void)close(fd);
    return ok;
}

/* Keeps the SHA-256 of a file for the session. When there is no room for it, the file would be built again. */
static void keep_sum(struct building *b, const char *name, const uint8_t sha256[TD_SHA256_BYTES])
{
    static const uint32_t no_table[1];
    struct td_publish_xorb_part *part;
    const struct td_call *call = b->write->hub.call;
    if (!td_publish_xorb_begin(call->api->publish, td_call_client(call), TD_SHA256_BYTES, &part, NULL))
        return;
    if (td_publish_xorb_write(part, sha256, TD_SHA256_BYTES, NULL))
        (void)td_publish_xorb_end(part, name, no_table, 0, NULL);
    else
        td_publish_xorb_abandon(part);
}

/* Returns whether the file's blob is here. */
static bool was_built(struct building *b, const struct td_xet_file *file, const char *name)
{
    uint8_t sha256[TD_SHA256_BYTES];
    return file->has_sha256 ? is_here(b, file->sha256) : find_sum(b, name, sha256) && is_here(b, sha256);
}

static bool build_file(struct building *b, const struct td_xet_file *file)
{
    struct td_publish_sum sum;
    char name[NAME_BYTES];
    if (!file->has_sha256)
        name_sum(b, file, name);
    if (was_built(b, file, name))
        return true;
    if (!td_publish_stream_begin(b->write->hub.call->api->publish, &b->write->name, file->bytes, &b->stream, b->err))
        return false;
    if (!add_terms(b, file)) {
        td_publish_stream_abandon(b->stream);
        return false;
    }
    if (!td_publish_stream_end(b->stream, file->has_sha256 ? file->sha256 : NULL, &sum, b->err))
        return false;
    if (!file->has_sha256)
        keep_sum(b, name, sum.sha256);
    return true;
}

/* Makes blobs of all files of the shard, once all of it has been read. */
static bool build_files(struct building *b, struct td_text shard)
{
    struct td_xet_file file;
    size_t first;
    if (!td_xet_shard_open(shard, &first, b->err))
        return false;
    size_t at = first;
    while (td_xet_shard_next(shard, &at, &file, b->err))
        continue;
    at = first;
    while (b->err->code == TD_OK && td_xet_shard_next(shard, &at, &file, b->err))
        (void)(is_awaited(b) && build_file(b, &file));
    return b->err->code == TD_OK;
}

static void end_shard(struct td_hub_write *write, const struct xet_path *path)
{
    struct td_error err = TD_ERROR_INIT;
    char session[NAME_BYTES];
    const struct td_call *call = write->hub.call;
    struct td_publish_sink *sink = td_publish_sink_of(call);
    name_xorb(write, path->session, NULL, session);
    td_publish_xorbs_renew(call->api->publish, session);
    if (!call->request->is_whole) {
        td_publishing_fail(call, &sink->err, 413);
        return;
    }
    struct building *b = malloc(sizeof *b);
    if (b == NULL) {
        (void)td_call_no_memory(call);
        return;
    }
    b->write = write;
    b->session = path->session;
    b->fd = -1;
    b->err = &err;
    b->unpacker.lz4 = NULL;
    if (build_files(b, td_buffer_text(&sink->text)))
        td_hub_write_answer_text(write, "{\"result\":1}");
    else
        td_publishing_fail(call, &err, 422);
    if (b->fd >= 0)
        (void)close(b->fd);
    td_xet_unpacker_fini(&b->unpacker);
    free(b);
}

/* ---- requests -------------------------------------------------------------------------------------------- */

struct td_body_sink *td_hub_begin_xet(struct td_hub_write *write)
{
    struct xet_path path;
    if (!split(write->hub.revision, &path)) { /* clients ask for more, and do without */
        (void)td_hub_fail(&write->hub, 404, NULL, "nothing at this path of Xet");
        return NULL;
    }
    if (!td_hub_write_begin(write) || !td_hub_write_has_repo(write))
        return NULL;
    return path.is_shard ? td_publish_sink_text(write->hub.call, SHARD_BYTES) : begin_xorb(write);
}

void td_hub_end_xet(struct td_hub_write *write)
{
    struct xet_path path;
    if (!split(write->hub.revision, &path) || !td_hub_write_begin(write))
        return;
    if (path.is_shard)
        end_shard(write, &path);
    else
        end_xorb(write, &path);
}
