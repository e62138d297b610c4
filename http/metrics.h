/* Counters of HTTP, and Prometheus text. No label holds a model, a path or a client, so the number of series does not
 * grow with what is served. Any thread may count. */
#ifndef TD_HTTP_METRICS_H
#define TD_HTTP_METRICS_H

#include "core/buffer.h"
#include "http/response.h"

#include <stdatomic.h>
#include <stdint.h>

/* The reason why a transfer ended before its last byte, or a connection before its answer. */
enum td_cut {
    TD_CUT_NONE,
    TD_CUT_CLIENT,   /* the client went away */
    TD_CUT_CHANGED,  /* the file changed or shrank under the transfer */
    TD_CUT_DAMAGED,  /* the compressed data for it are damaged */
    TD_CUT_BUSY,     /* no memory or no turn to unpack its data in time */
    TD_CUT_STALLED,  /* no progress within the send timeout */
    TD_CUT_SLOW,     /* slower than the minimum rate */
    TD_CUT_DEADLINE, /* a request's header or body was incomplete at its deadline */
    TD_CUT_IDLE,     /* no byte of a request came within the idle timeout */
    TD_CUT_SHUTDOWN, /* cut at the end of the drain timeout */
    TD_CUT_COUNT
};

/* The ways in which a body is sent (server/mhd/transfer.h). */
enum td_way {
    TD_WAY_NONE, /* no body */
    TD_WAY_COPY,
    TD_WAY_MEMORY,
    TD_WAY_FILE,
    TD_WAY_CHECKED,
    TD_WAY_COUNT
};

/* The reason why an upload was refused. */
enum td_upload_refusal {
    TD_UPLOAD_OVER_TOTAL,   /* as many uploads are in progress as may be */
    TD_UPLOAD_OVER_ADDRESS, /* the same for those of one address */
    TD_UPLOAD_BY_HANDLER,   /* the handler refused it before its body */
    TD_UPLOAD_BY_SINK,      /* the sink failed in the middle of its body */
    TD_UPLOAD_REFUSALS
};

/* Returns the reason's label, such as "client". Static. */
const char *td_cut_name(enum td_cut cut);

enum { TD_STATUS_SLOTS = 26, TD_LATENCY_BUCKETS = 12, TD_METRICS_SAMPLES = 128 };

/* The counters that td_metrics_sample takes samples of. */
enum td_sampled { TD_SAMPLED_REQUESTS, TD_SAMPLED_SENT_BYTES, TD_SAMPLED_UPLOAD_BYTES, TD_SAMPLED_COUNT };

struct td_metrics {
    _Atomic uint64_t requests[TD_ROUTE_COUNT][TD_STATUS_SLOTS]; /* the last slot counts all other statuses */
    _Atomic uint64_t sent_bytes;                                /* body bytes handed to the kernel */
    _Atomic uint64_t latency[TD_LATENCY_BUCKETS + 1];           /* from 50 us to 600 s; the last counts longer ones */
    _Atomic uint64_t latency_sum_ns;
    _Atomic uint64_t cuts[TD_CUT_COUNT];
    _Atomic uint64_t ways[TD_WAY_COUNT]; /* answers with a body, by the way it was sent; TD_WAY_NONE is not counted */
    _Atomic int64_t uploads;             /* whose bodies are arriving or being handled now */
    _Atomic uint64_t upload_bytes;       /* of bodies, taken by sinks */
    _Atomic uint64_t uploads_refused[TD_UPLOAD_REFUSALS];
    _Atomic int64_t in_flight;          /* requests that are being answered now */
    _Atomic int64_t connections;        /* open now */
    _Atomic uint64_t connections_limit; /* --max-connections */
    _Atomic uint64_t accepted;          /* connections since the start */
    _Atomic uint64_t jobs;              /* requests that a shared thread handed to a job */
    _Atomic uint64_t waiters;           /* requests that wait for a change; not in in_flight */
    /* connections refused: over the total limit, over the limit of one address, without a thread */
    _Atomic uint64_t refused_total, refused_address, refused_threads;
    _Atomic int64_t grpc_streams;         /* of HTTP/2, open or still worked for */
    _Atomic uint64_t grpc_resets;         /* calls that the client has reset */
    _Atomic uint64_t grpc_floods;         /* connections of HTTP/2 that were ended since the client exceeded a bound */
    _Atomic uint64_t malformed;           /* requests that the request guard refused */
    _Atomic uint64_t access_log_dropped;  /* lines */
    _Atomic int64_t certificate_expiry_s; /* since 1970; 0: there is no TLS */
    _Atomic uint64_t tokens;              /* of the file, also expired ones */
    _Atomic bool tokens_failed;           /* the tokens file could not be read again; the tokens before stay */
    _Atomic uint64_t samples[TD_METRICS_SAMPLES][TD_SAMPLED_COUNT]; /* a ring */
    _Atomic uint64_t sample_count;                                  /* since the start */
};

/* Counts one answered request. sent_bytes: of its body. took_ns: from the request line to the last byte handed to the
 * kernel, without the time for which it waited for a change. */
void td_metrics_request(struct td_metrics *metrics, enum td_route route, int status, uint64_t sent_bytes,
                        uint64_t took_ns);

/* Counts a cut; TD_CUT_NONE counts nothing. */
void td_metrics_cut(struct td_metrics *metrics, enum td_cut cut);

/* Counts an answer by its way. */
void td_metrics_way(struct td_metrics *metrics, enum td_way way);

/* Returns the number of answered requests since the start. */
uint64_t td_metrics_request_count(const struct td_metrics *metrics);

/* Takes a sample of the counters. One thread calls it, once a second. */
void td_metrics_sample(struct td_metrics *metrics);

/* Copies what was counted in each of the last seconds, the newest last: differences of the samples. Returns their
 * number, below TD_METRICS_SAMPLES. */
size_t td_metrics_last_seconds(const struct td_metrics *metrics, uint64_t out[TD_METRICS_SAMPLES][TD_SAMPLED_COUNT]);

/* Appends the samples of HTTP as Prometheus text (version 0.0.4). */
void td_metrics_write(const struct td_metrics *metrics, struct td_buffer *out);

/* Appends the HELP and TYPE lines of a metric; type is "counter", "gauge" or "histogram". */
void td_metrics_head(struct td_buffer *out, const char *name, const char *type, const char *help);

/* Append HELP and TYPE lines and one sample: of a gauge, and of a counter. */
void td_metrics_gauge(struct td_buffer *out, const char *name, const char *help, double value);
void td_metrics_count(struct td_buffer *out, const char *name, const char *help, uint64_t value);

#endif
