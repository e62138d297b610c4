/* The text of GET /metrics: the samples of HTTP, and those of the catalog and of memory budgets. */
#ifndef TD_API_NATIVE_METRICS_PAGE_H
#define TD_API_NATIVE_METRICS_PAGE_H

#include "api/call/state.h"
#include "catalog/catalog.h"
#include "catalog/publish/publish_store.h"
#include "catalog/upstream/upstream.h"
#include "http/metrics.h"

/* Appends the Prometheus text (version 0.0.4). rank_file_bytes: the memory of rank files and slices now; list_bytes:
 * the memory of lists and descriptions that are being sent. */
void td_native_write_metrics(const struct td_metrics *metrics, const struct td_catalog_status *status,
                             uint64_t rank_file_bytes, uint64_t list_bytes, bool draining, struct td_buffer *out);

/* Appends the samples of --upstream; all zeros without one. */
void td_native_write_upstream_metrics(const struct td_upstream_status *status, struct td_buffer *out);

/* Appends the samples of --publish; all zeros without it. */
void td_native_write_publish_metrics(const struct td_publish_status *status, struct td_buffer *out);

/* Appends the samples of GET /events. */
void td_native_write_event_metrics(struct td_event_streams *streams, struct td_event_ring *ring, struct td_buffer *out);

#endif
