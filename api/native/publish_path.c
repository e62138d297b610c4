#include "api/native/publish_path.h"

#include <string.h>

/* Returns the place that a word after an id stands for, with the rest of the path after the word. has_rest: a '/'
 * follows the word. */
static enum td_publish_place place_of(struct td_text word, bool has_rest, struct td_text rest)
{
    bool has_item = has_rest && rest.len > 0;
    bool is_one = has_item && memchr(rest.p, '/', rest.len) == NULL;
    if (td_text_equals(word, "blobs"))
        return !has_item ? TD_PLACE_BLOBS : is_one ? TD_PLACE_BLOB : TD_PLACE_NONE;
    if (td_text_equals(word, "commits"))
        return has_item ? TD_PLACE_NONE : TD_PLACE_COMMITS;
    return td_text_equals(word, "files") && has_item ? TD_PLACE_FILE : TD_PLACE_NONE;
}

/* Takes a segment off the rest, and sets *has_more to whether a '/' followed it. */
static struct td_text take_segment(struct td_text *rest, bool *has_more)
{
    size_t len = rest->len;
    struct td_text segment = td_text_take_until(rest, '/');
    *has_more = segment.len < len;
    return segment;
}

void td_publish_path_split(struct td_text path, struct td_publish_path *out)
{
    static const struct td_text models = TD_TEXT("/models/"), datasets = TD_TEXT("/datasets/");
    *out = (struct td_publish_path){.is_dataset = td_text_begins(path, datasets)};
    if (!out->is_dataset && !td_text_begins(path, models))
        return;
    const struct td_text whole = td_text_skip(path, out->is_dataset ? datasets.len : models.len);
    struct td_text rest = whole;
    struct td_text ends[3];
    bool has_more = true;
    for (size_t i = 0; i < 3; i++) {
        ends[i] = has_more ? take_segment(&rest, &has_more) : TD_TEXT("");
        if (i == 0)
            continue;
        enum td_publish_place place = place_of(ends[i], has_more, rest);
        bool is_of_two = i == 1 && place == TD_PLACE_BLOB && place_of(rest, false, TD_TEXT("")) != TD_PLACE_NONE;
        if (place == TD_PLACE_NONE || is_of_two) /* "org/blobs/commits": no blob has such a name */
            continue;
        out->place = place;
        out->id = td_text_n(whole.p, (size_t)(ends[i].p - whole.p) - 1);
        out->rest = rest;
        return;
    }
    out->id = whole;
    size_t slashes = 0;
    for (size_t i = 0; i < whole.len; i++)
        slashes += whole.p[i] == '/' ? 1 : 0;
    if (whole.len > 0 && slashes < 2)
        out->place = TD_PLACE_REPO;
}
