#include "slicing/plan/rule.h"

#include <inttypes.h>
#include <string.h>

/* ---- patterns ---- */

struct matcher {
    const char *pattern, *name;
    size_t name_len;
    struct td_captures *captures;
    uint64_t steps; /* characters looked at */
};

static bool begins_any(const char *pattern)
{
    return pattern[0] == '*' && pattern[1] == '*';
}

static size_t component_len(const struct matcher *m, size_t at)
{
    const char *dot = memchr(m->name + at, '.', m->name_len - at);
    return dot == NULL ? m->name_len - at : (size_t)(dot - (m->name + at));
}

static bool add_capture(struct matcher *m, size_t off, size_t len)
{
    struct td_captures *c = m->captures;
    if (c->count == TD_RULE_MAX_CAPTURES)
        return false;
    c->at[c->count].off = (uint32_t)off;
    c->at[c->count].len = (uint32_t)len;
    c->count++;
    return true;
}

/* Matches from pattern[*p] and name[*n] to the pattern's end or its next "**", and moves both there. Returns false
 * where they differ. */
static bool match_block(struct matcher *m, size_t *p, size_t *n)
{
    while (m->pattern[*p] != '\0' && !begins_any(m->pattern + *p)) {
        m->steps++;
        if (m->pattern[*p] == '*') {
            size_t len = component_len(m, *n);
            m->steps += len;
            if (len == 0 || !add_capture(m, *n, len))
                return false;
            *n += len;
        } else if (*n < m->name_len && m->name[*n] == m->pattern[*p]) {
            ++*n;
        } else {
            return false;
        }
        ++*p;
    }
    return true;
}

/* Tries the block of the pattern after a "**" at each place of the name, from the left. The first place that fits is
 * final: a later place could only end later, because "*" takes whole components. The last block must end with the name.
 */
static bool match_after_any(struct matcher *m, size_t *p, size_t *n)
{
    size_t begin = *n;
    uint32_t mine = m->captures->count;
    if (!add_capture(m, begin, 0))
        return false;
    if (m->pattern[*p] == '\0') {
        m->captures->at[mine].len = (uint32_t)(m->name_len - begin);
        *n = m->name_len;
        return true;
    }
    for (size_t at = begin; at <= m->name_len; at++) {
        size_t block = *p;
        size_t end = at;
        m->captures->at[mine].len = (uint32_t)(at - begin);
        m->captures->count = mine + 1;
        if (match_block(m, &block, &end) && (m->pattern[block] != '\0' || end == m->name_len)) {
            *p = block;
            *n = end;
            return true;
        }
        m->steps++;
    }
    return false;
}

/* Returns whether the name ends with the pattern's text after its last wildcard. Most patterns of a list do not match,
 * and this test is fast. */
static bool same_ending(const struct matcher *m)
{
    const char *star = strrchr(m->pattern, '*');
    const char *ending = star == NULL ? m->pattern : star + 1;
    size_t len = strlen(ending);
    return len <= m->name_len && memcmp(m->name + m->name_len - len, ending, len) == 0;
}

static bool match_all(struct matcher *m)
{
    size_t p = 0;
    size_t n = 0;
    m->captures->count = 0;
    if (m->name_len > UINT32_MAX || !same_ending(m) || !match_block(m, &p, &n))
        return false;
    while (begins_any(m->pattern + p)) {
        p += 2;
        if (!match_after_any(m, &p, &n))
            return false;
    }
    return n == m->name_len;
}

bool td_rule_match(const char *pattern, struct td_text name, struct td_captures *captures)
{
    struct matcher m = {.pattern = pattern, .name = name.p, .name_len = name.len, .captures = captures};
    return match_all(&m);
}

/* Returns the first rule from number *at on that matches the name, and sets *at to the number after it. `constants`:
 * looks only at constants; false: only at other rules. */
static const struct td_rule *find_from(const struct td_rule_list *rules, size_t *at, bool constants,
                                       struct td_text name, struct td_captures *captures, uint64_t *steps)
{
    while (*at < rules->count) {
        const struct td_rule *rule = &rules->rules[(*at)++];
        struct matcher m = {.pattern = rule->match, .name = name.p, .name_len = name.len, .captures = captures};
        bool found = rule->is_constant == constants && match_all(&m);
        if (steps != NULL) {
            *steps -= m.steps < *steps ? m.steps + 1 : *steps;
            if (*steps == 0)
                return NULL;
        }
        if (found)
            return rule;
    }
    return NULL;
}

const struct td_rule *td_rules_find(const struct td_rule_list *rules, struct td_text name, struct td_captures *captures,
                                    uint64_t *steps)
{
    size_t at = 0;
    return find_from(rules, &at, false, name, captures, steps);
}

const struct td_rule *td_rules_next_constant(const struct td_rule_list *rules, size_t *at, struct td_text name,
                                             struct td_captures *captures, uint64_t *steps)
{
    return find_from(rules, at, true, name, captures, steps);
}

/* ---- results ---- */

void td_rule_write_out(const struct td_rule *rule, const char *name, const struct td_captures *captures,
                       struct td_buffer *out)
{
    uint32_t next = 0;
    for (const char *p = rule->out; *p != '\0';) {
        if (*p != '*') {
            td_buffer_putc(out, *p++);
            continue;
        }
        p += begins_any(p) ? 2 : 1;
        if (next < captures->count)
            td_buffer_append(out, name + captures->at[next].off, captures->at[next].len);
        next++;
    }
}

/* ---- checks ---- */

bool td_tp_size_check(uint64_t tp_size, struct td_error *err)
{
    return (tp_size >= 1 && tp_size <= TD_MAX_TP_SIZE) ||
           td_error_set(err, TD_INVALID_ARGUMENT, "tp_size is %" PRIu64 "; from 1 to %d is right", tp_size,
                        TD_MAX_TP_SIZE);
}

/* Counts a pattern's wildcards. Returns NULL, or the reason why they are not allowed. */
static const char *count_wildcards(const char *pattern, bool whole_components, uint32_t *count)
{
    *count = 0;
    for (size_t i = 0; pattern[i] != '\0'; i++) {
        if (i >= TD_RULE_MAX_PATTERN_BYTES)
            return "a pattern is longer than 1024 bytes";
        if (pattern[i] != '*')
            continue;
        bool any = begins_any(pattern + i);
        size_t end = i + (any ? 2 : 1);
        if (pattern[end] == '*')
            return "wildcards touch; put a dot between them";
        if (!any && whole_components &&
            ((i > 0 && pattern[i - 1] != '.') || (pattern[end] != '.' && pattern[end] != '\0')))
            return "\"*\" stands for a whole component between dots; \"**\" is any text";
        if (++*count > TD_RULE_MAX_CAPTURES)
            return "more than 8 wildcards";
        i = end - 1;
    }
    return NULL;
}

const char *td_rule_check(const struct td_rule *rule)
{
    uint32_t given;
    uint32_t used = 0;
    const char *reason = count_wildcards(rule->match, true, &given);
    if (reason == NULL && rule->out != NULL)
        reason = count_wildcards(rule->out, false, &used);
    if (reason != NULL)
        return reason;
    if (rule->stack && given == 0)
        return "a rule with \"stack\" needs a wildcard in \"match\": the last one is the index";
    if (rule->stack && rule->out == NULL)
        return "a rule with \"stack\" needs \"out\"";
    if (rule->is_constant && rule->out == NULL)
        return "a rule with \"constant\" needs \"out\"";
    if (used > given - (rule->stack ? 1 : 0))
        return "out has more wildcards than match gives it";
    return NULL;
}
