/* Walks over graphs: the compiled twin of `matchers/graph.py`, which is the specification. Lists of edges are in the
   form of `Ragged`: node i owns value[start[i]] to value[start[i + 1]]; a value outside of the n nodes is no edge. */

#include <stdint.h>
#include <stdlib.h>

enum { SHORT = 16 }; /* lists that insertion sorts fastest */

/* Whether an edge of a node that counts leads to an earlier one. */
static int leads_up(int64_t n, const int64_t *start, const int64_t *value, const uint8_t *through)
{
    for (int64_t node = 0; node < n; node++)
        for (int64_t e = start[node]; through[node] && e < start[node + 1]; e++)
            if (value[e] >= 0 && value[e] < node)
                return 1;
    return 0;
}

/* Hand on the marks of n nodes: to the nodes in the list of each (back), else to each from those in its list. */
void graph_spread(int64_t n, const int64_t *start, const int64_t *value, const uint8_t *through, uint64_t *marks,
                  int64_t back, int64_t rounds)
{
    int up = 0, down = 0, changed = 1;
    for (int64_t round = 0; changed && round < rounds; round++) {
        changed = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t node = back ? n - 1 - k : k;
            if (!through[node] || (back && !marks[node]))
                continue;
            uint64_t seen = marks[node];
            for (int64_t e = start[node]; e < start[node + 1]; e++) {
                int64_t other = value[e];
                if (other < 0 || other >= n)
                    continue;
                up |= other < node;
                down |= other > node;
                if (!back)
                    seen |= marks[other];
                else if (seen & ~marks[other]) {
                    marks[other] |= seen;
                    changed = 1;
                }
            }
            if (seen != marks[node]) {
                marks[node] = seen;
                changed = 1;
            }
        }
        if (!down || !(up || (back && leads_up(n, start, value, through)))) /* one pass follows any chain */
            return;
    }
}

static int64_t root(int64_t *label, int64_t node)
{
    while (label[node] != node)
        node = label[node] = label[label[node]];
    return node;
}

static void join(int64_t *label, const int8_t *group, int64_t one, int64_t other)
{
    if (group[one] < 0 || group[one] != group[other])
        return;
    one = root(label, one);
    other = root(label, other);
    if (one < other)
        label[other] = one;
    else
        label[one] = other;
}

static void join_edges(int64_t *label, const int8_t *group, int64_t nodes, const int64_t *start, const int64_t *value,
                       const int64_t *at)
{
    for (int64_t node = 0; node < nodes; node++)
        for (int64_t e = group[at[node]] < 0 ? start[node + 1] : start[node]; e < start[node + 1]; e++)
            if (value[e] >= 0 && value[e] < nodes)
                join(label, group, at[value[e]], at[node]);
}

/* Label each of n nodes with the smallest one of its group that it is connected with; -1 in none. By the edges of two
   graphs, and by what row[k] of one and other_row[k] of the other read at the same place. */
void graph_connected(int64_t n, int64_t nodes, int64_t other_nodes, int64_t many, const int8_t *group,
                     const int64_t *start, const int64_t *value, const int64_t *at, const int64_t *other_start,
                     const int64_t *other_value, const int64_t *other_at, const int64_t *row, const int64_t *other_row,
                     int64_t *label)
{
    for (int64_t node = 0; node < n; node++)
        label[node] = node;
    join_edges(label, group, nodes, start, value, at);
    join_edges(label, group, other_nodes, other_start, other_value, other_at);
    for (int64_t k = 0; k < many; k++) {
        int64_t a = start[row[k]], b = other_start[other_row[k]];
        for (; a < start[row[k] + 1] && b < other_start[other_row[k] + 1]; a++, b++)
            if (value[a] >= 0 && other_value[b] >= 0)
                join(label, group, at[value[a]], other_at[other_value[b]]);
    }
    for (int64_t node = 0; node < n; node++) /* a smaller node has its label already */
        label[node] = group[node] < 0 ? -1 : label[label[node]];
}

/* Which of n nodes owns each value. */
void graph_owners(int64_t n, const int64_t *start, int64_t *out)
{
    for (int64_t node = 0; node < n; node++)
        for (int64_t e = start[node]; e < start[node + 1]; e++)
            out[e] = node;
}

static int ascending(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static void sort(int64_t *values, int64_t many)
{
    if (many > SHORT) {
        qsort(values, (size_t)many, sizeof *values, ascending);
        return;
    }
    for (int64_t k = 1; k < many; k++) {
        int64_t value = values[k], at = k;
        for (; at > 0 && values[at - 1] > value; at--)
            values[at] = values[at - 1];
        values[at] = value;
    }
}

/* Sort the values of each of n rows, of which `start` has the ends, and leave each one once. */
static int64_t distinct(int64_t n, int64_t *start, int64_t *out)
{
    int64_t left = 0, begin = 0;
    for (int64_t node = 0; node < n; node++) {
        int64_t end = start[node];
        sort(out + begin, end - begin);
        start[node] = left;
        for (int64_t k = begin; k < end; k++)
            if (k == begin || out[k] != out[left - 1])
                out[left++] = out[k];
        begin = end;
    }
    start[n] = left;
    return left;
}

/* The distinct values of each of n rows, ascending: `start` has n + 1 places, all zero, and `out` as many as there are
   pairs. Returns how many values are left. */
int64_t graph_lists(int64_t many, const int64_t *row, const int64_t *value, int64_t n, int64_t *start, int64_t *out)
{
    for (int64_t k = 0; k < many; k++)
        start[row[k] + 1]++;
    for (int64_t node = 0; node < n; node++)
        start[node + 1] += start[node];
    for (int64_t k = 0; k < many; k++)
        out[start[row[k]]++] = value[k];
    return distinct(n, start, out);
}

/* The same of the edges of a graph of `nodes`, each renamed to one of n rows, `at`; those within a row are none. */
int64_t graph_renamed(int64_t nodes, const int64_t *begin, const int64_t *value, const int64_t *at, int64_t n,
                      int64_t *start, int64_t *out)
{
    for (int placing = 0; placing < 2; placing++) {
        for (int64_t node = 0; node < nodes; node++)
            for (int64_t e = begin[node], row = at[node]; e < begin[node + 1]; e++) {
                int64_t other = value[e] < 0 || value[e] >= nodes ? row : at[value[e]];
                if (row < 0 || other == row || other < 0)
                    continue;
                if (placing)
                    out[start[row]++] = other;
                else
                    start[row + 1]++;
            }
        for (int64_t row = 0; row < n && !placing; row++)
            start[row + 1] += start[row];
    }
    return distinct(n, start, out);
}

/* The values that each of n rows has in either of two such lists. */
int64_t graph_union(int64_t n, const int64_t *one_start, const int64_t *one, const int64_t *other_start,
                    const int64_t *other, int64_t *start, int64_t *out)
{
    int64_t left = 0;
    for (int64_t row = 0; row < n; row++) {
        int64_t a = one_start[row], b = other_start[row];
        start[row] = left;
        while (a < one_start[row + 1] || b < other_start[row + 1]) {
            int64_t x = a < one_start[row + 1] ? one[a] : INT64_MAX, y = b < other_start[row + 1] ? other[b] : INT64_MAX;
            out[left++] = x < y ? x : y;
            a += x <= y;
            b += y <= x;
        }
    }
    start[n] = left;
    return left;
}

/* The edges of a graph of `nodes`, each of which is one of several others, `at`, from some of these to some. Returns how
   many there are. */
int64_t graph_between(int64_t nodes, const int64_t *start, const int64_t *value, const int64_t *at, const uint8_t *made,
                      const uint8_t *read, int64_t *maker, int64_t *reader)
{
    int64_t found = 0;
    for (int64_t node = 0; node < nodes; node++)
        for (int64_t e = read[at[node]] ? start[node] : start[node + 1]; e < start[node + 1]; e++)
            if (value[e] >= 0 && value[e] < nodes && made[at[value[e]]]) {
                maker[found] = at[value[e]];
                reader[found++] = at[node];
            }
    return found;
}
