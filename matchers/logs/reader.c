/* Reads the records of an operation log into columns: docs/log-format.md.

   The compiled twin of `matchers/logs/plain_reader.py`, which is the specification: both give the same columns, texts
   and problems for every input. Python reads the header, cuts the file into pieces that start with a record, and hands
   them in one by one:

       reader_new     an empty reader
       reader_add     the records of a piece
       reader_finish  after the last piece
       reader_names   the names and types of the columns
       reader_size    the size of a column
       reader_take    its bytes, which are Python's from then on
       reader_give_back  frees them
       reader_state   numbers about the whole log
       reader_free    frees all

   Data model. A `Column` is an array that grows. Columns of rows have an element per record. A list (of hashes,
   digests, producers) is a column of values and one of starts: row i owns the values from start[i] to start[i + 1].
   A `Table` is a list of texts with a hash index: their bytes, each followed by a newline, and their starts; texts
   that repeat (modules, shapes, locations) are in it once, and columns of rows hold their numbers, -1 for none.
   Sparse texts (`TextField`) have their row and their number in a table of their own.

   A log is untrusted. Nothing is read beyond the piece, memory grows with what was read and never with what a log
   claims, nothing recurses, hashes have a secret seed. Where memory ends, the reader is left by longjmp; all memory
   hangs on the `Reader`, which can then only be freed. */

#define _GNU_SOURCE
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#ifndef __SIZEOF_INT128__
#error "128-bit integers are needed"
#endif

typedef unsigned __int128 Wide;
typedef struct { const char *at; int64_t size; } Text;
typedef struct { void *at; int64_t size, room; } Column; /* size and room in bytes */
typedef struct { uint32_t hash; int32_t id; } Slot;      /* id -1: free */
typedef struct { Column text, start; Slot *slots; uint64_t mask; int64_t used; int32_t last; } Table;
typedef struct { Table table; Column row, id; } TextField;
typedef struct { Column value, start; } List;

/* Fields, those of one first letter together. */
enum {
    ARGUMENTS, COUNTS, CALL, DIGEST, EXCHANGED, FROM, GROUP, INPUT_HASHES, INPUT_PRODUCERS, INPUT_DIGESTS,
    INPUT_STATISTICS, INPUTS, L1,
    L2, LOCATION, LIKE, MIN, MAX, MEAN, MUTATED, MICRO_BATCH, NAMED, OUTPUT_HASH, OUT, OVERLOAD, PHASE, PLACEMENT,
    PARAMETER, RECOMPUTE, RANDOM, READ, ROWS, SHAPE, SEQ, SKETCH, STACK, USER_HASH, FIELDS
};
static const char *const NAMES[FIELDS] = {
    "Arguments", "Counts", "Call", "Digest", "Exchanged", "From", "Group", "Input hashes", "Input producers",
    "Input digests", "Input statistics", "Inputs", "L1 norm", "L2 norm", "Location", "Like", "Min", "Max", "Mean", "Mutated", "Micro-batch",
    "Named", "Output hash", "Out", "Overload", "Phase", "Placement", "Parameter", "Recompute", "Random", "Read", "Rows",
    "Shape", "Seq", "Sketch", "Stack", "User hash"
};
enum {
    T_PLACEMENT, T_STACK, T_PARAMETER, T_MUTATED, T_SKETCH, T_GROUP, T_EXCHANGED, T_USER_HASH, T_OVERLOAD, T_ARGUMENTS,
    T_INPUTS, T_RANDOM, T_READ, T_NAMED, T_ROWS, T_INPUT_STATISTICS, TEXTS
};
/* Texts that a record of a compact log may take from another one. */
enum { S_PLACEMENT, S_STACK, S_SKETCH, S_OVERLOAD, S_ARGUMENTS, S_INPUTS, SHARED };
static const int SHARED_TEXT[SHARED] = {T_PLACEMENT, T_STACK, T_SKETCH, T_OVERLOAD, T_ARGUMENTS, T_INPUTS};
enum { STATISTICS = 5, COUNTED = 4, MAX_PROBLEMS = 1000, MAX_NUMBER = 400, MAX_OUTSIDE = 200, MAX_LATER = 40 };
enum { OTHER_PHASE = 3, UNKNOWN_PHASE = -1, NO_PRODUCER = -1, UNKNOWN_PRODUCER = -2, FIRST_OUTPUT = -1 };
enum { TENSOR = 1, SOURCE = 2, OUTPUT = 4, CALLED = 8 }; /* groups of fields that a record of a compact log takes from another */
static const uint64_t NO_DIGEST = 0x6E6F206469676573;

typedef struct {
    /* of rows */
    Column line, module, op, counter, shape, location, phase, present, stats[STATISTICS], recompute, micro_batch;
    Column counts[COUNTED]; /* empty as long as no record has counts */
    Table keys, modules, ops, shapes, locations;
    List outputs, inputs, producers, digests, input_digests;
    TextField texts[TEXTS], further; /* further: the fields `Output k` */
    Table further_names;
    Column further_name, further_last; /* of each text its name; of each name the last row that has it */
    Column problem_line;
    Table problem_text;
    Column outside_line; /* lines that may be the footer */
    Table outside_text;
    Column digest_text; /* values of `Digest` of the piece, joined by newlines */

    /* of compact logs: which groups a row refers to another for, its texts that others refer to, rows by number */
    Column refers, shared[SHARED], input_refers, seq_row;
    Table seqs;

    int ours, compact;
    uint64_t seed;
    locale_t locale;
    int64_t lines, rows, problems;
    int open, ends_blank, blank_before_last;
    int64_t last_seq;
    jmp_buf no_memory;

    /* of the record that is being read; its texts lie in the piece */
    int cut;  /* the line is the last one, and has no end */
    int tail; /* and neither has the log */
    uint64_t seen;
    int64_t key_line, seq, line_of[FIELDS];
    uint32_t key_hash;
    Text digest, like, out, from, call;
    int32_t text_id[TEXTS];
} Reader;

#define I4(column) ((int32_t *)(column).at)
#define I8(column) ((int64_t *)(column).at)
#define U8(column) ((uint64_t *)(column).at)
#define F8(column) ((double *)(column).at)
#define U1(column) ((uint8_t *)(column).at)

/* Columns by name and type, in the order of `reader_size` and the others. */
#define TABLE(X, name, table) X(name, "S", table.text) X(name " start", "i8", table.start)
#define LIST(X, name, type, list) X(name, type, list.value) X(name " start", "i8", list.start)
#define TEXT(X, name, field) TABLE(X, name, field.table) X(name " row", "i4", field.row) X(name " id", "i4", field.id)
#define COLUMNS(X)                                                                                                     \
    X("line", "i4", line) X("module", "i4", module) X("op", "i4", op) X("counter", "i4", counter)                      \
    X("shape", "i4", shape) X("location", "i4", location) X("phase", "i1", phase) X("present", "u1", present)          \
    X("recompute", "?", recompute) X("micro_batch", "i4", micro_batch)                                                 \
    X("L1 norm", "f8", stats[0]) X("L2 norm", "f8", stats[1]) X("Min", "f8", stats[2]) X("Max", "f8", stats[3])        \
    X("Mean", "f8", stats[4]) X("numel", "i8", counts[0]) X("nan", "i8", counts[1]) X("inf", "i8", counts[2])          \
    X("zero", "i8", counts[3]) TABLE(X, "keys", keys) TABLE(X, "modules", modules) TABLE(X, "ops", ops)                \
    TABLE(X, "shapes", shapes) TABLE(X, "locations", locations) LIST(X, "outputs", "f8", outputs)                      \
    LIST(X, "inputs", "f8", inputs) LIST(X, "producers", "i4", producers) LIST(X, "digests", "u8", digests)            \
    LIST(X, "input_digests", "u8", input_digests) TEXT(X, "Placement", texts[T_PLACEMENT])                             \
    TEXT(X, "Stack", texts[T_STACK]) TEXT(X, "Parameter", texts[T_PARAMETER]) TEXT(X, "Mutated", texts[T_MUTATED])     \
    TEXT(X, "Sketch", texts[T_SKETCH]) TEXT(X, "Group", texts[T_GROUP]) TEXT(X, "Exchanged", texts[T_EXCHANGED])       \
    TEXT(X, "User hash", texts[T_USER_HASH]) TEXT(X, "Overload", texts[T_OVERLOAD])                                    \
    TEXT(X, "Arguments", texts[T_ARGUMENTS]) TEXT(X, "Inputs", texts[T_INPUTS]) TEXT(X, "Random", texts[T_RANDOM])     \
    TEXT(X, "Read", texts[T_READ]) TEXT(X, "Named", texts[T_NAMED]) TEXT(X, "Rows", texts[T_ROWS])                     \
    TEXT(X, "Input statistics", texts[T_INPUT_STATISTICS]) TEXT(X, "Output", further)                                  \
    X("Output name", "i4", further_name) TABLE(X, "Output names", further_names)                                       \
    X("problem line", "i8", problem_line) TABLE(X, "problem", problem_text) X("outside line", "i8", outside_line)      \
    TABLE(X, "outside", outside_text) X("digest text", "S", digest_text)

#define COUNT_ONE(name, type, member) +1
enum { COLUMN_COUNT = 0 COLUMNS(COUNT_ONE) };

/* ------------------------------------------------------------------ memory */

static void enlarge(Reader *r, Column *c, int64_t more)
{
    if (more > INT64_MAX / 4 - c->size) longjmp(r->no_memory, 1);
    int64_t room = c->size + more;
    if (room < c->room + c->room / 4) room = c->room + c->room / 4;
    if (room < 4096) room = 4096;
    void *at = (uint64_t)room > SIZE_MAX ? NULL : realloc(c->at, (size_t)room);
    if (!at) longjmp(r->no_memory, 1);
    c->at = at;
    c->room = room;
}

/* Room for `more` bytes at the end of a column. */
static inline void *extended(Reader *r, Column *c, int64_t more)
{
    if (more > c->room - c->size) enlarge(r, c, more);
    void *end = (char *)c->at + c->size;
    c->size += more;
    return end;
}

static inline void add_bytes(Reader *r, Column *c, const void *at, int64_t size)
{
    if (size) memcpy(extended(r, c, size), at, (size_t)size);
}

static void add_i4(Reader *r, Column *c, int32_t value) { add_bytes(r, c, &value, sizeof value); }
static void add_i8(Reader *r, Column *c, int64_t value) { add_bytes(r, c, &value, sizeof value); }
static void add_u8(Reader *r, Column *c, uint64_t value) { add_bytes(r, c, &value, sizeof value); }
static void add_f8(Reader *r, Column *c, double value) { add_bytes(r, c, &value, sizeof value); }
static void add_u1(Reader *r, Column *c, uint8_t value) { add_bytes(r, c, &value, sizeof value); }

/* ------------------------------------------------------------------ texts */

static int equals(Text text, const char *other)
{
    return text.size == (int64_t)strlen(other) && !memcmp(text.at, other, (size_t)text.size);
}

static int begins(Text text, const char *start)
{
    return text.size >= (int64_t)strlen(start) && !memcmp(text.at, start, strlen(start));
}

static Text from(Text text, int64_t start) { return (Text){text.at + start, text.size - start}; }

static inline int is_digit(char c) { return c >= '0' && c <= '9'; }

static int is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static Text stripped(Text text)
{
    while (text.size && is_space(text.at[0])) text = from(text, 1);
    while (text.size && is_space(text.at[text.size - 1])) text.size--;
    return text;
}

static int64_t position(Text text, char c)
{
    const char *found = text.size ? memchr(text.at, c, (size_t)text.size) : NULL;
    return found ? found - text.at : -1;
}

/* Position of a text of 8 letters or fewer from behind; -1: it is not there. */
static int64_t last_position(Text text, const char *wanted)
{
    int64_t size = (int64_t)strlen(wanted);
    for (int64_t at = text.size - size; at >= 0; at--)
        if (text.at[at] == wanted[0] && !memcmp(text.at + at, wanted, (size_t)size)) return at;
    return -1;
}

/* Takes the next part off a list; the space before it is not part of it. `rest->at` is NULL after the last one. */
static int next_part(Text *rest, char separator, Text *part)
{
    if (!rest->at) return 0;
    int64_t end = position(*rest, separator);
    *part = (Text){rest->at, end < 0 ? rest->size : end};
    *rest = end < 0 ? (Text){NULL, 0} : from(*rest, end + 1);
    if (part->size && part->at[0] == ' ') *part = from(*part, 1);
    return 1;
}

/* As `next_part`, of a list that may have no parts at all. */
static Text parts_of(Text list)
{
    int nothing = !list.size || (list.size == 1 && list.at[0] == ' ');
    return nothing ? (Text){NULL, 0} : list;
}

static uint64_t word(const char *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t mixed(uint64_t a, uint64_t b)
{
    Wide product = (Wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint32_t hash_of(const Reader *r, Text text)
{
    uint64_t hash = r->seed ^ (uint64_t)text.size * 0x9E3779B97F4A7C15, last = 0;
    const char *at = text.at;
    int64_t left = text.size;
    for (; left > 8; left -= 8, at += 8) hash = mixed(hash ^ word(at), 0xBF58476D1CE4E5B9 ^ r->seed);
    if (text.size >= 8)
        last = word(text.at + text.size - 8); /* overlaps the words before */
    else
        for (int64_t k = 0; k < left; k++) last |= (uint64_t)(uint8_t)at[k] << (8 * k);
    hash = mixed(hash ^ last, 0x94D049BB133111EB ^ r->seed);
    return (uint32_t)(hash ^ hash >> 32);
}

static int64_t count_of(const Table *t) { return t->start.size ? t->start.size / 8 - 1 : 0; }

static Text text_at(const Table *t, int64_t id)
{
    int64_t start = I8(t->start)[id];
    return (Text){(const char *)t->text.at + start, I8(t->start)[id + 1] - 1 - start};
}

/* Adds a text, also one that is there; returns its number. */
static int32_t append(Reader *r, Table *t, Text text)
{
    int64_t id = count_of(t);
    if (id >= INT32_MAX - 1) longjmp(r->no_memory, 1);
    if (!t->start.size) add_i8(r, &t->start, 0);
    char *end = extended(r, &t->text, text.size + 1);
    if (text.size) memcpy(end, text.at, (size_t)text.size);
    end[text.size] = '\n';
    add_i8(r, &t->start, t->text.size);
    return (int32_t)id;
}

/* Slots for the texts of a table: at least twice as many as there are. */
static void make_room(Reader *r, Table *t)
{
    if (t->slots && (uint64_t)t->used * 2 <= t->mask) return;
    uint64_t size = t->slots ? (t->mask + 1) * 2 : 64;
    if (size > SIZE_MAX / sizeof(Slot)) longjmp(r->no_memory, 1);
    Slot *slots = malloc((size_t)size * sizeof(Slot));
    if (!slots) longjmp(r->no_memory, 1);
    memset(slots, 0xFF, (size_t)size * sizeof(Slot));
    for (uint64_t k = 0; t->slots && k <= t->mask; k++) {
        if (t->slots[k].id < 0) continue;
        uint64_t at = t->slots[k].hash & (size - 1);
        while (slots[at].id >= 0) at = (at + 1) & (size - 1);
        slots[at] = t->slots[k];
    }
    free(t->slots);
    t->slots = slots;
    t->mask = size - 1;
}

static inline int same(Text a, Text b) { return a.size == b.size && (!a.size || !memcmp(a.at, b.at, (size_t)a.size)); }

/* The slot of a text, or the free one that is for it. */
static Slot *slot_of(Reader *r, Table *t, Text text, uint32_t hash)
{
    make_room(r, t);
    for (uint64_t at = hash & t->mask;; at = (at + 1) & t->mask) {
        Slot *slot = &t->slots[at];
        if (slot->id < 0) return slot;
        if (slot->hash == hash && same(text_at(t, slot->id), text)) return slot;
    }
}

/* The number of a text that is in the table once. */
static int32_t interned(Reader *r, Table *t, Text text)
{
    if (t->used && same(text_at(t, t->last), text)) return t->last; /* as in the record before */
    uint32_t hash = hash_of(r, text);
    Slot *slot = slot_of(r, t, text, hash);
    if (slot->id < 0) {
        int32_t id = append(r, t, text);
        *slot = (Slot){hash, id};
        t->used++;
    }
    t->last = slot->id;
    return slot->id;
}

/* ------------------------------------------------------------------ problems */

static void problem(Reader *r, int64_t line, const char *format, ...)
{
    if (r->problems++ >= MAX_PROBLEMS) return;
    char message[256];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof message, format, values);
    va_end(values);
    add_i8(r, &r->problem_line, line);
    append(r, &r->problem_text, (Text){message, (int64_t)strlen(message)});
}

/* ------------------------------------------------------------------ numbers */

static const uint64_t FIVES[28] = { /* powers of five that fit in 64 bits */
    1, 5, 25, 125, 625, 3125, 15625, 78125, 390625, 1953125, 9765625, 48828125, 244140625, 1220703125, 6103515625,
    30517578125, 152587890625, 762939453125, 3814697265625, 19073486328125, 95367431640625, 476837158203125,
    2384185791015625, 11920928955078125, 59604644775390625, 298023223876953125, 1490116119384765625,
    7450580596923828125
};
static const double TENS[23] = { /* powers of ten that are exact */
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19,
    1e20, 1e21, 1e22
};

static int bits_of(Wide n)
{
    uint64_t high = (uint64_t)(n >> 64), low = (uint64_t)n;
    return high ? 128 - __builtin_clzll(high) : low ? 64 - __builtin_clzll(low) : 0;
}

/* The double nearest to digits · 10^exponent, |exponent| <= 27: one rounding, ties to even. */
static double scaled(uint64_t digits, int exponent)
{
    if (!digits) return 0.0;
    if (digits <= (uint64_t)1 << 53 && exponent >= -22 && exponent <= 22)
        return exponent < 0 ? (double)digits / TENS[-exponent] : (double)digits * TENS[exponent];
    Wide n;
    int power = exponent, inexact = 0; /* the value is n · 2^power, and a bit more if inexact */
    if (exponent >= 0) {
        n = (Wide)digits * FIVES[exponent];
    } else {
        int up = __builtin_clzll(digits), down = __builtin_clzll(FIVES[-exponent]);
        Wide dividend = (Wide)(digits << up) << 63;
        uint64_t divisor = FIVES[-exponent] << down;
        n = dividend / divisor; /* of 63 or 64 bits */
        inexact = dividend % divisor != 0;
        power += down - up - 63;
    }
    int drop = bits_of(n) - 53;
    if (drop > 0) {
        Wide half = (Wide)1 << (drop - 1), rest = n & (half * 2 - 1);
        n >>= drop;
        n += rest > half || (rest == half && (inexact || n & 1));
        power += drop;
    }
    return ldexp((double)(uint64_t)n, power);
}

static int is_word(Text text, const char *other)
{
    if (text.size != (int64_t)strlen(other)) return 0;
    for (int64_t k = 0; k < text.size; k++)
        if ((text.at[k] | 0x20) != other[k]) return 0;
    return 1;
}

/* What `scaled` cannot round: `text` is a decimal number. */
static double by_library(const Reader *r, Text text)
{
    char copy[MAX_NUMBER + 1];
    memcpy(copy, text.at, (size_t)text.size);
    copy[text.size] = 0;
    return strtod_l(copy, NULL, r->locale);
}

/* Reads `-1.234567e+08`, the form that torchtitan prints; 0: the text has another one. */
static int read_seven_digits(Text text, double *value)
{
    int negative = text.size == 13 && text.at[0] == '-';
    if (text.size - negative != 12) return 0;
    const char *at = text.at + negative;
    int good = is_digit(at[0]) & (at[1] == '.') & (at[8] == 'e') & is_digit(at[10]) & is_digit(at[11]);
    uint64_t digits = (uint64_t)(at[0] - '0');
    for (int k = 2; k < 8; k++) {
        good &= is_digit(at[k]);
        digits = digits * 10 + (uint64_t)(at[k] - '0');
    }
    int exponent = (at[10] - '0') * 10 + at[11] - '0';
    if (!good || (at[9] != '+' && at[9] != '-') || exponent > 20) return 0;
    *value = scaled(digits, (at[9] == '-' ? -exponent : exponent) - 6);
    *value = negative ? -*value : *value;
    return 1;
}

/* Reads a number in the form that Python's `float` takes, without underscores; 0: it is none. */
static int read_number(const Reader *r, Text text, double *value)
{
    if (read_seven_digits(text, value)) return 1;
    if (text.size > MAX_NUMBER) return 0;
    Text whole = text = stripped(text);
    int negative = text.size && text.at[0] == '-';
    if (text.size && (text.at[0] == '-' || text.at[0] == '+')) text = from(text, 1);
    if (is_word(text, "nan") || is_word(text, "inf") || is_word(text, "infinity")) {
        *value = (text.at[0] | 0x20) == 'n' ? NAN : INFINITY;
        *value = negative ? -*value : *value;
        return 1;
    }
    const char *at = text.at, *end = text.at + text.size;
    uint64_t digits = 0;
    int64_t significant = 0, exponent = 0;
    int any = 0, point = 0;
    for (; at < end; at++) {
        if (*at == '.' && !point) {
            point = 1;
        } else if (is_digit(*at)) {
            any = 1;
            exponent -= point;
            significant += significant || *at != '0';
            if (significant <= 19) digits = digits * 10 + (uint64_t)(*at - '0');
        } else {
            break;
        }
    }
    if (!any) return 0;
    if (at < end) {
        if ((*at++ | 0x20) != 'e') return 0;
        int below = at < end && *at == '-';
        if (at < end && (*at == '-' || *at == '+')) at++;
        int64_t written = 0;
        if (at == end) return 0;
        for (; at < end; at++) {
            if (!is_digit(*at)) return 0;
            if (written < 100000) written = written * 10 + (*at - '0');
        }
        exponent += below ? -written : written;
    }
    if (significant == 0)
        *value = 0.0;
    else if (significant <= 19 && exponent >= -27 && exponent <= 27)
        *value = scaled(digits, (int)exponent);
    else
        *value = fabs(by_library(r, whole));
    *value = negative ? -*value : *value;
    return 1;
}

/* Reads 1 to `most` digits, at most 18; -1: it is something else. */
static int64_t whole_number(Text text, int64_t most)
{
    int64_t value = 0;
    if (text.size < 1 || text.size > most) return -1;
    for (int64_t k = 0; k < text.size; k++) {
        if (!is_digit(text.at[k])) return -1;
        value = value * 10 + (text.at[k] - '0');
    }
    return value;
}

/* Reads 1 to 16 hexadecimal digits, or the dash for a digest that was not taken; 0: it is neither. */
static int read_digest(Text text, uint64_t *value)
{
    *value = NO_DIGEST;
    if (equals(text, "-")) return 1;
    if (text.size < 1 || text.size > 16) return 0;
    uint64_t digest = 0;
    for (int64_t k = 0; k < text.size; k++) {
        char c = text.at[k], lower = (char)(c | 0x20);
        if (is_digit(c))
            digest = digest << 4 | (uint64_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            digest = digest << 4 | (uint64_t)(lower - 'a' + 10);
        else
            return 0;
    }
    *value = digest;
    return 1;
}

/* ------------------------------------------------------------------ values of fields */

/* True if the number that ends an open line may have been cut: all of ours, and torchtitan's of less than 12 bytes. */
static int may_be_cut(const Reader *r, Text value)
{
    int64_t start = value.size;
    if (!r->tail) return 0;
    while (start && value.at[start - 1] != ' ') start--;
    value = from(value, start);
    while (value.size && value.at[0] == '-') value = from(value, 1);
    return r->ours || value.size < 12;
}

static void read_statistic(Reader *r, int field, Text value, int64_t line)
{
    static const int kind[FIELDS] = {[L1] = 0, [L2] = 1, [MIN] = 2, [MAX] = 3, [MEAN] = 4};
    int64_t row = r->rows - 1;
    double number;
    if (!read_number(r, value, &number) || may_be_cut(r, value)) {
        problem(r, line, "%s is not a number", NAMES[field]);
        return;
    }
    F8(r->stats[kind[field]])[row] = number;
    U1(r->present)[row] |= (uint8_t)(1 << kind[field]);
}

static void read_hashes(Reader *r, int field, Text value, int64_t line)
{
    List *list = field == OUTPUT_HASH ? &r->outputs : &r->inputs;
    Text rest = parts_of(value), part;
    while (next_part(&rest, ',', &part)) {
        double number;
        /* an invalid value keeps its place, so that the others keep theirs */
        if (!read_number(r, part, &number) || (!rest.at && may_be_cut(r, value))) {
            problem(r, line, "%s is not a number", NAMES[field]);
            number = NAN;
        }
        add_f8(r, &list->value, number);
        if (field == INPUT_HASHES && r->compact) add_u1(r, &r->input_refers, 0);
    }
}

static void read_digests(Reader *r, int field, Text value, int64_t line)
{
    List *list = field == DIGEST ? &r->digests : &r->input_digests;
    Text rest = parts_of(value), part;
    while (next_part(&rest, ',', &part)) {
        uint64_t digest;
        /* half a digest would read as a different one */
        if (!read_digest(part, &digest) || (!rest.at && r->tail)) {
            problem(r, line, "%s is not hexadecimal", NAMES[field]);
            digest = NO_DIGEST;
        }
        add_u8(r, &list->value, digest);
    }
}

/* The last record of that key before this one. */
static int32_t producer_of(Reader *r, Text key)
{
    Slot *slot = slot_of(r, &r->keys, key, hash_of(r, key));
    return slot->id < 0 ? UNKNOWN_PRODUCER : slot->id;
}

static void read_producers(Reader *r, Text value)
{
    Text part;
    while (next_part(&value, ';', &part)) add_i4(r, &r->producers.value, part.size ? producer_of(r, part) : NO_PRODUCER);
}

/* torch.Size([2, 3]), Dtype: torch.float32 */
static int is_shape(Text text)
{
    static const char size[] = "torch.Size([", dtype[] = "]), Dtype: ", torch[] = "torch.";
    if (!begins(text, size)) return 0;
    text = from(text, (int64_t)strlen(size));
    while (text.size && (is_digit(text.at[0]) || text.at[0] == ',' || text.at[0] == ' ')) text = from(text, 1);
    if (!begins(text, dtype)) return 0;
    text = from(text, (int64_t)strlen(dtype));
    if (begins(text, torch) && text.size > (int64_t)strlen(torch)) text = from(text, (int64_t)strlen(torch));
    for (int64_t k = 0; k < text.size; k++) {
        char c = text.at[k], lower = (char)(c | 0x20);
        if (!is_digit(c) && !(lower >= 'a' && lower <= 'z') && c != '_' && c != '.') return 0;
    }
    return text.size > 0;
}

/* numel=4 nan=0 inf=0 zero=1 */
static int read_counts(Text text, int64_t *counts)
{
    static const char *const label[COUNTED] = {"numel=", "nan=", "inf=", "zero="};
    for (int k = 0; k < COUNTED; k++) {
        int64_t end = k < COUNTED - 1 ? position(text, ' ') : text.size;
        int64_t start = (int64_t)strlen(label[k]);
        if (end < start || !begins(text, label[k])) return 0;
        counts[k] = whole_number((Text){text.at + start, end - start}, 18);
        if (counts[k] < 0) return 0;
        text = from(text, end + (k < COUNTED - 1));
    }
    return 1;
}

static void set_counts(Reader *r, const int64_t *counts)
{
    for (int k = 0; k < COUNTED; k++) {
        while (r->counts[k].size < r->rows * 8) add_i8(r, &r->counts[k], -1);
        I8(r->counts[k])[r->rows - 1] = counts[k];
    }
}

static int phase_of(Text text)
{
    static const char *const label[] = {"forward", "backward", "optimizer", "other", "prepare", "gradients", "after"};
    text = stripped(text);
    for (int k = 0; k < 7; k++)
        if (equals(text, label[k])) return k;
    return UNKNOWN_PHASE;
}

/* Records are numbered from 0 without gaps. */
static void follow(Reader *r, Text value, int64_t line)
{
    int64_t seq = whole_number(value, 15), before = r->last_seq;
    if (seq < 0) {
        problem(r, line, "Seq is not a number");
        return;
    }
    if (seq <= before)
        problem(r, line, "record %lld follows record %lld", (long long)seq, (long long)before);
    else if (seq == before + 2)
        problem(r, line, "record %lld is missing", (long long)before + 1);
    else if (seq > before + 2)
        problem(r, line, "records %lld\xe2\x80\x93%lld are missing", (long long)before + 1, (long long)seq - 1);
    r->last_seq = r->seq = seq;
}

static void set_text(Reader *r, int which, Text value)
{
    Table *table = &r->texts[which].table;
    int repeats = which == T_PLACEMENT || which == T_STACK || which == T_PARAMETER || which == T_NAMED ||
                  which == T_OVERLOAD || which == T_ARGUMENTS || which == T_INPUTS;
    r->text_id[which] = repeats ? interned(r, table, value) : append(r, table, value);
}

static void read_field(Reader *r, int field, Text value)
{
    int64_t row = r->rows - 1, line = r->lines, counts[COUNTED], number;
    int phase;
    r->line_of[field] = line;
    switch (field) {
    case SHAPE:
        if (is_shape(value))
            I4(r->shape)[row] = interned(r, &r->shapes, value);
        else
            problem(r, line, "Shape is not of the form 'torch.Size([2, 3]), Dtype: torch.float32'");
        break;
    case L1: case L2: case MIN: case MAX: case MEAN: read_statistic(r, field, value, line); break;
    case OUTPUT_HASH: case INPUT_HASHES: read_hashes(r, field, value, line); break;
    case DIGEST:
        r->digest = value;
        read_digests(r, field, value, line);
        break;
    case INPUT_DIGESTS: read_digests(r, field, value, line); break;
    case INPUT_PRODUCERS: read_producers(r, value); break;
    case LOCATION: I4(r->location)[row] = interned(r, &r->locations, value); break;
    case PHASE:
        phase = phase_of(value);
        U1(r->phase)[row] = (uint8_t)(phase == UNKNOWN_PHASE ? OTHER_PHASE : phase);
        if (phase == UNKNOWN_PHASE) problem(r, line, "unknown phase");
        break;
    case RECOMPUTE: U1(r->recompute)[row] = (uint8_t)equals(stripped(value), "true"); break;
    case MICRO_BATCH:
        number = whole_number(value, 9);
        I4(r->micro_batch)[row] = (int32_t)number;
        if (number < 0) problem(r, line, "Micro-batch is not a number");
        break;
    case COUNTS:
        if (read_counts(value, counts))
            set_counts(r, counts);
        else
            problem(r, line, "Counts is not of the form 'numel=4 nan=0 inf=0 zero=1'");
        break;
    case SEQ: follow(r, value, line); break;
    case PLACEMENT: set_text(r, T_PLACEMENT, value); break;
    case STACK: set_text(r, T_STACK, value); break;
    case PARAMETER: set_text(r, T_PARAMETER, value); break;
    case MUTATED: set_text(r, T_MUTATED, value); break;
    case SKETCH: set_text(r, T_SKETCH, value); break;
    case GROUP: set_text(r, T_GROUP, value); break;
    case EXCHANGED: set_text(r, T_EXCHANGED, value); break;
    case USER_HASH: set_text(r, T_USER_HASH, value); break;
    case OVERLOAD: set_text(r, T_OVERLOAD, value); break;
    case ARGUMENTS: set_text(r, T_ARGUMENTS, value); break;
    case INPUTS: set_text(r, T_INPUTS, value); break;
    case RANDOM: set_text(r, T_RANDOM, value); break;
    case READ: set_text(r, T_READ, value); break;
    case ROWS: set_text(r, T_ROWS, value); break;
    case INPUT_STATISTICS: set_text(r, T_INPUT_STATISTICS, value); break;
    /* what refers to other records waits for the end of this one; cut off, it says nothing */
    case LIKE: if (!r->cut) r->like = value; break;
    case OUT: if (!r->cut) r->out = value; break;
    case FROM: if (!r->cut) r->from = value; break;
    case CALL: if (!r->cut) r->call = value; break;
    case NAMED: if (r->compact && !r->cut) set_text(r, T_NAMED, value); break;
    }
}

/* ------------------------------------------------------------------ references of compact logs */

/* The row of a record before this one by its number; -1: there is none. */
static int32_t row_of(Reader *r, int64_t seq)
{
    Text text = {(const char *)&seq, sizeof seq};
    Slot *slot = slot_of(r, &r->seqs, text, hash_of(r, text));
    if (slot->id >= 0) return I4(r->seq_row)[slot->id];
    problem(r, r->key_line, "refers to record %lld, which is not before it", (long long)seq);
    return -1;
}

static void no_values(Reader *r)
{
    problem(r, r->key_line, "refers to values that the other record does not have itself");
}

/* The row whose group of fields this record shares; -1: none has it. */
static int32_t shared_row(Reader *r, int64_t seq, int group)
{
    int32_t row = row_of(r, seq);
    U1(r->refers)[r->rows - 1] |= (uint8_t)group;
    if (row >= 0 && U1(r->refers)[row] & group) {
        no_values(r);
        return -1;
    }
    return row;
}

/* Takes a text from another record if that has it. */
static void share_text(Reader *r, int32_t source, int shared)
{
    int32_t id = I4(r->shared[shared])[source];
    if (id >= 0) r->text_id[SHARED_TEXT[shared]] = id;
}

static void resolve_like(Reader *r)
{
    int64_t row = r->rows - 1, number[2] = {0, 0}, count = 0, good = 0;
    Text rest = parts_of(r->like), part;
    while (next_part(&rest, ' ', &part)) {
        int64_t seq = whole_number(part, 15);
        good += seq >= 0 || equals(part, "-");
        if (count < 2) number[count] = seq;
        count++;
    }
    if (count != 2 || good != 2) {
        problem(r, r->line_of[LIKE], "Like is not of the form '12 64', '12 -' or '- 64'");
        return;
    }
    int32_t source = number[0] < 0 ? -1 : shared_row(r, number[0], TENSOR);
    if (source >= 0) {
        int64_t counts[COUNTED];
        I4(r->shape)[row] = I4(r->shape)[source];
        if (r->counts[0].size) {
            for (int k = 0; k < COUNTED; k++) counts[k] = I8(r->counts[k])[source];
            set_counts(r, counts);
        }
        share_text(r, source, S_PLACEMENT);
    }
    source = number[1] < 0 ? -1 : shared_row(r, number[1], SOURCE);
    if (source >= 0) {
        I4(r->location)[row] = I4(r->location)[source];
        U1(r->phase)[row] = U1(r->phase)[source];
        U1(r->recompute)[row] = U1(r->recompute)[source];
        I4(r->micro_batch)[row] = I4(r->micro_batch)[source];
        share_text(r, source, S_STACK);
    }
}

static void out_field(Reader *r, int field, Text value)
{
    if (r->seen >> field & 1) return; /* written in full */
    r->seen |= (uint64_t)1 << field;
    r->lines = r->line_of[OUT]; /* where a problem is */
    read_field(r, field, value);
}

static void resolve_out(Reader *r)
{
    static const int fields[] = {L2, MIN, MAX, MEAN, OUTPUT_HASH, DIGEST, SKETCH};
    int64_t row = r->rows - 1, count = 0, lines = r->lines, seq = -1;
    int tail = r->tail;
    Text rest = parts_of(r->out), part, value[7];
    for (; next_part(&rest, ' ', &part); count++)
        if (count < 7) value[count] = part;
    if (count == 2 && value[0].size && value[0].at[0] == '@') seq = whole_number(from(value[0], 1), 15);
    r->tail = 0; /* a line that is cut off is not resolved */
    if (seq >= 0)
        out_field(r, DIGEST, value[1]);
    else if (count == 6 || count == 7)
        for (int k = 0; k < count; k++) out_field(r, fields[k], value[k]);
    else
        problem(r, r->line_of[OUT], "Out is not of the form '@12 DIGEST', nor six or seven values");
    r->tail = tail;
    r->lines = lines;
    int32_t source = seq < 0 ? -1 : shared_row(r, seq, OUTPUT);
    if (source < 0) return;
    int64_t first = I8(r->outputs.start)[source];
    if (I8(r->outputs.start)[source + 1] - first != 1) {
        no_values(r);
        return;
    }
    for (int k = 0; k < STATISTICS; k++) F8(r->stats[k])[row] = F8(r->stats[k])[source];
    U1(r->present)[row] = U1(r->present)[source];
    r->outputs.value.size = I8(r->outputs.start)[row] * 8;
    add_f8(r, &r->outputs.value, F8(r->outputs.value)[first]);
    share_text(r, source, S_SKETCH);
}

static void resolve_call(Reader *r)
{
    int64_t seq = whole_number(r->call, 15);
    if (seq < 0) {
        problem(r, r->line_of[CALL], "Call is not the number of a record");
        return;
    }
    int32_t source = shared_row(r, seq, CALLED);
    for (int k = S_OVERLOAD; source >= 0 && k <= S_INPUTS; k++) share_text(r, source, k);
}

/* What an entry of `From` says, in order: the producer, then where hash and digest are. */
typedef struct {
    int good;
    int64_t producer, content, slot; /* numbers of records, -1 for none; slot: of an input, or FIRST_OUTPUT */
    int32_t row;                     /* of a producer that is named by its key, or none */
    double hash;
    uint64_t digest;
} Entry;

/* Reads `@12` or `@12.3`. */
static int read_place(Text text, Entry *entry)
{
    if (!text.size || text.at[0] != '@') return 0;
    text = from(text, 1);
    int64_t point = position(text, '.');
    int64_t record = whole_number(point < 0 ? text : (Text){text.at, point}, 15);
    int64_t slot = point < 0 ? FIRST_OUTPUT : whole_number(from(text, point + 1), 9);
    if (record < 0 || (point >= 0 && slot < 0)) return 0;
    entry->content = record;
    entry->slot = slot;
    return 1;
}

static Entry read_entry(Reader *r, Text text)
{
    Entry entry = {1, -1, -1, FIRST_OUTPUT, NO_PRODUCER, NAN, NO_DIGEST};
    int64_t end = position(text, ' ');
    Text first = end < 0 ? text : (Text){text.at, end};
    entry.producer = whole_number(first, 15);
    if (first.size > 1 && first.at[0] == '[' && first.at[first.size - 1] == ']') {
        entry.row = producer_of(r, (Text){first.at + 1, first.size - 2});
    } else if (entry.producer < 0 && !equals(first, "-")) {
        entry.row = UNKNOWN_PRODUCER;
        entry.good = 0;
    }
    if (end < 0) { /* as its producer made it */
        entry.content = entry.producer;
        entry.good &= entry.producer >= 0;
        return entry;
    }
    text = from(text, end + 1);
    end = position(text, ' ');
    if (end < 0) {
        entry.good &= read_place(text, &entry) || equals(text, "-");
    } else {
        Text digest = from(text, end + 1);
        if (position(digest, ' ') >= 0) {
            entry.good = 0;
            return entry;
        }
        entry.good &= read_number(r, (Text){text.at, end}, &entry.hash);
        entry.good &= read_digest(digest, &entry.digest);
    }
    return entry;
}

/* Fills in hash and digest of an input that another record has, as its first output or in a slot. */
static void find_content(Reader *r, Entry *entry)
{
    int32_t row = row_of(r, entry->content);
    if (row < 0) return;
    const int64_t *outputs = I8(r->outputs.start) + row, *digests = I8(r->digests.start) + row;
    const int64_t *inputs = I8(r->inputs.start) + row, *input_digests = I8(r->input_digests.start) + row;
    int64_t slot = entry->slot;
    if (slot == FIRST_OUTPUT) {
        if (outputs[0] == outputs[1]) no_values(r);
        if (outputs[0] < outputs[1]) entry->hash = F8(r->outputs.value)[outputs[0]];
        if (digests[0] < digests[1]) entry->digest = U8(r->digests.value)[digests[0]];
    } else if (slot < inputs[1] - inputs[0] && slot < input_digests[1] - input_digests[0] &&
               !U1(r->input_refers)[inputs[0] + slot]) {
        entry->hash = F8(r->inputs.value)[inputs[0] + slot];
        entry->digest = U8(r->input_digests.value)[input_digests[0] + slot];
    } else {
        no_values(r);
    }
}

static void resolve_from(Reader *r)
{
    const uint64_t plain = (uint64_t)1 << INPUT_PRODUCERS | (uint64_t)1 << INPUT_HASHES | (uint64_t)1 << INPUT_DIGESTS;
    Text rest = parts_of(r->from), part;
    if (r->seen & plain) {
        problem(r, r->line_of[FROM], "From stands beside fields that it is in place of");
        return;
    }
    while (next_part(&rest, ';', &part)) {
        Entry entry = read_entry(r, part);
        if (!entry.good) problem(r, r->line_of[FROM], "From names an input in an unknown form");
        if (entry.producer >= 0) {
            entry.row = row_of(r, entry.producer);
            if (entry.row < 0) entry.row = UNKNOWN_PRODUCER;
        }
        add_u1(r, &r->input_refers, entry.content >= 0);
        if (entry.content >= 0) find_content(r, &entry);
        add_i4(r, &r->producers.value, entry.row);
        add_f8(r, &r->inputs.value, entry.hash);
        add_u8(r, &r->input_digests.value, entry.digest);
    }
}

/* ------------------------------------------------------------------ records */

/* Where in a key `module/op_N_name` the module ends and the operation starts; returns N, -1 without one. */
static int32_t split_key(Text key, int64_t *module_end, int64_t *op_start)
{
    int64_t mark = last_position(key, "/op_");
    if (mark >= 0) {
        Text rest = from(key, mark + 4);
        int64_t digits = 0;
        while (digits < 8 && digits < rest.size && is_digit(rest.at[digits])) digits++;
        if (digits > 0 && digits < 8 && digits < rest.size && rest.at[digits] == '_') {
            *module_end = mark;
            *op_start = mark + 4 + digits + 1;
            return (int32_t)whole_number((Text){rest.at, digits}, 7);
        }
    }
    mark = last_position(key, "/");
    *module_end = mark < 0 ? 0 : mark;
    *op_start = mark + 1;
    return -1;
}

/* The lists of a row start where those before it end. */
static void start_lists(Reader *r)
{
    add_i8(r, &r->outputs.start, r->outputs.value.size / 8);
    add_i8(r, &r->inputs.start, r->inputs.value.size / 8);
    add_i8(r, &r->producers.start, r->producers.value.size / 4);
    add_i8(r, &r->digests.start, r->digests.value.size / 8);
    add_i8(r, &r->input_digests.start, r->input_digests.value.size / 8);
}

static void begin_record(Reader *r, Text line)
{
    Text key = from(line, 1);
    int64_t module_end, op_start;
    if (key.size && key.at[key.size - 1] == ']')
        key.size--;
    else
        problem(r, r->lines, "the record's key has no closing ']'");
    r->rows++;
    append(r, &r->keys, key);
    r->key_hash = hash_of(r, key);
    make_room(r, &r->keys);
    __builtin_prefetch(&r->keys.slots[r->key_hash & r->keys.mask]); /* for the end of the record */
    add_i4(r, &r->counter, split_key(key, &module_end, &op_start));
    add_i4(r, &r->module, interned(r, &r->modules, (Text){key.at, module_end}));
    add_i4(r, &r->op, interned(r, &r->ops, from(key, op_start)));
    add_i4(r, &r->line, r->lines > INT32_MAX ? INT32_MAX : (int32_t)r->lines);
    add_i4(r, &r->shape, -1);
    add_i4(r, &r->location, -1);
    add_u1(r, &r->phase, 0);
    add_u1(r, &r->present, 0);
    add_u1(r, &r->recompute, 0);
    add_i4(r, &r->micro_batch, -1);
    for (int k = 0; k < STATISTICS; k++) add_f8(r, &r->stats[k], NAN);
    for (int k = 0; k < COUNTED; k++)
        if (r->counts[k].size) add_i8(r, &r->counts[k], -1);
    start_lists(r);
    if (r->compact) add_u1(r, &r->refers, 0);
    r->key_line = r->lines;
    r->seen = 0;
    r->seq = -1;
    r->digest.at = r->like.at = r->out.at = r->from.at = r->call.at = NULL;
    for (int k = 0; k < TEXTS; k++) r->text_id[k] = -1;
}

static void end_record(Reader *r)
{
    int32_t row = (int32_t)(r->rows - 1);
    if (r->compact) {
        if (r->like.at) resolve_like(r);
        if (r->out.at) resolve_out(r);
        if (r->from.at) resolve_from(r);
        if (r->call.at) resolve_call(r);
        for (int k = 0; k < SHARED; k++) add_i4(r, &r->shared[k], r->text_id[SHARED_TEXT[k]]);
        if (r->seq >= 0) {
            int64_t known = count_of(&r->seqs);
            /* of two records of one number the first counts */
            if (interned(r, &r->seqs, (Text){(const char *)&r->seq, sizeof r->seq}) == known) add_i4(r, &r->seq_row, row);
        }
    }
    for (int k = 0; k < TEXTS; k++) {
        if (r->text_id[k] < 0) continue;
        add_i4(r, &r->texts[k].row, row);
        add_i4(r, &r->texts[k].id, r->text_id[k]);
    }
    if (row) add_u1(r, &r->digest_text, '\n');
    if (r->digest.at) add_bytes(r, &r->digest_text, r->digest.at, r->digest.size);
    /* from here on, this is the last record of its key */
    Slot *slot = slot_of(r, &r->keys, text_at(&r->keys, row), r->key_hash);
    r->keys.used += slot->id < 0;
    *slot = (Slot){r->key_hash, row};
}

/* How lines of a field begin: a number of bytes, of which the first eight as a word. */
typedef struct { const char *text; int64_t size; uint64_t start, mask; } Prefix;

static Prefix prefixes[FIELDS];
static int8_t first_field[26]; /* of each letter the first field that begins with it, and one more; 0: none does */

__attribute__((constructor)) static void prepare_prefixes(void)
{
    for (int k = FIELDS - 1; k >= 0; k--) {
        static char text[FIELDS][32];
        int size = snprintf(text[k], sizeof text[k], "%s: ", NAMES[k]);
        uint64_t mask = size < 8 ? ((uint64_t)1 << (8 * size)) - 1 : UINT64_MAX;
        prefixes[k] = (Prefix){text[k], size, word(text[k]) & mask, mask};
        first_field[NAMES[k][0] - 'A'] = (int8_t)(k + 1);
    }
}

/* The field that a line holds, and its value; -1: none that is known. */
static int field_of(Text line, Text *value)
{
    uint64_t start = 0;
    if (line.size < 7 || line.at[0] != ' ' || line.at[1] != ' ' || line.at[2] < 'A' || line.at[2] > 'Z') return -1;
    line = from(line, 2);
    if (line.size >= 8)
        start = word(line.at);
    else
        memcpy(&start, line.at, (size_t)line.size);
    for (int k = first_field[line.at[0] - 'A'] - 1; k >= 0 && k < FIELDS && NAMES[k][0] == line.at[0]; k++) {
        const Prefix *prefix = &prefixes[k];
        if ((start & prefix->mask) != prefix->start || line.size < prefix->size) continue;
        if (prefix->size > 8 && memcmp(line.at + 8, prefix->text + 8, (size_t)prefix->size - 8)) continue;
        *value = from(line, prefix->size);
        return k;
    }
    return -1;
}

/* Reads `Output 12: …`; 0: the line is none. */
static int read_further_output(Reader *r, Text line)
{
    int32_t row = (int32_t)(r->rows - 1);
    int64_t end = 9;
    if (!begins(line, "  Output ")) return 0;
    while (end < line.size && end < 18 && is_digit(line.at[end])) end++;
    if (end == 9 || end + 1 >= line.size || line.at[end] != ':' || line.at[end + 1] != ' ') return 0;
    int64_t known = count_of(&r->further_names);
    int32_t name = interned(r, &r->further_names, (Text){line.at + 2, end - 2});
    if (name == known)
        add_i4(r, &r->further_last, -1);
    if (I4(r->further_last)[name] == row) return 1; /* the first counts */
    I4(r->further_last)[name] = row;
    add_i4(r, &r->further.row, row);
    add_i4(r, &r->further.id, append(r, &r->further.table, from(line, end + 2)));
    add_i4(r, &r->further_name, name);
    return 1;
}

static void read_other_line(Reader *r, Text line)
{
    if (!stripped(line).size || read_further_output(r, line)) return;
    if (begins(line, "  ") && !begins(line, "   "))
        for (int64_t k = 2; k + 1 < line.size && k + 1 < MAX_LATER; k++)
            if (line.at[k] == ':' && line.at[k + 1] == ' ') return; /* a field of a later version */
    if (begins(line, "End of capture:")) {
        add_i8(r, &r->outside_line, r->lines);
        append(r, &r->outside_text, (Text){line.at, line.size < MAX_OUTSIDE ? line.size : MAX_OUTSIDE});
    } else if (!begins(line, "Digest of all records") && !begins(line, "====")) {
        problem(r, r->lines, "not a field of a record");
    }
}

static void read_line(Reader *r, Text line)
{
    Text value;
    int field;
    if (!line.size) return;
    if (line.at[0] == '[') {
        r->blank_before_last = r->ends_blank;
        if (r->key_line) end_record(r);
        begin_record(r, line);
    } else if ((field = field_of(line, &value)) < 0) {
        read_other_line(r, line);
    } else if (!(r->seen >> field & 1)) { /* of repeated fields the first counts */
        r->seen |= (uint64_t)1 << field;
        read_field(r, field, value);
    }
}

/* ------------------------------------------------------------------ interface */

static const char COLUMN_NAMES[] =
#define NAME(name, type, member) name ":" type "\n"
    COLUMNS(NAME);

static Column *column_at(Reader *r, int64_t k)
{
#define PLACE(name, type, member) &r->member,
    Column *columns[] = {COLUMNS(PLACE)};
    return columns[k];
}

/* Lines "name:type" of all columns; the types are numpy's, S for bytes. */
const char *reader_names(void) { return COLUMN_NAMES; }

void reader_free(Reader *r)
{
    if (!r) return;
    Table *tables[] = {&r->keys, &r->modules, &r->ops, &r->shapes, &r->locations, &r->further_names, &r->seqs};
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++) free(tables[k]->slots);
    for (int k = 0; k < TEXTS; k++) free(r->texts[k].table.slots);
    for (int64_t k = 0; k < COLUMN_COUNT; k++) free(column_at(r, k)->at);
    for (int k = 0; k < SHARED; k++) free(r->shared[k].at);
    Column *others[] = {&r->further_last, &r->refers, &r->input_refers, &r->seq_row, &r->seqs.text, &r->seqs.start};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) free(others[k]->at);
    if (r->locale) freelocale(r->locale);
    free(r);
}

/* An empty reader; NULL without memory. `lines`: number of lines before the first record. `ours`: of numtui's
   capture. */
Reader *reader_new(int64_t lines, int ours, int compact, uint64_t seed)
{
    Reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->lines = lines;
    r->ours = ours;
    r->compact = compact;
    r->seed = seed | 1;
    r->last_seq = -1;
    r->locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!r->locale) {
        free(r);
        return NULL;
    }
    return r;
}

static void read_piece(Reader *r, const char *at, int64_t size, int last)
{
    const char *end = at + size;
    r->digest_text.size = 0;
    r->key_line = 0;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        Text line = {at, (stop ? stop : end) - at};
        if (line.size && line.at[line.size - 1] == '\r') line.size--;
        r->lines++;
        r->cut = !stop;
        r->tail = last && !stop;
        read_line(r, line);
        r->ends_blank = !line.size;
        r->open = !stop;
        at = stop ? stop + 1 : end;
    }
    if (r->key_line) end_record(r);
}

/* Reads a piece, which starts with a record. `last`: the log ends with it. Returns 0, or 1 where memory ended. */
int reader_add(Reader *r, const char *piece, int64_t size, int last)
{
    if (setjmp(r->no_memory)) return 1;
    read_piece(r, piece, size, last);
    return 0;
}

int reader_finish(Reader *r)
{
    Table *tables[] = {&r->keys, &r->modules, &r->ops, &r->shapes, &r->locations, &r->further_names, &r->further.table,
                       &r->problem_text, &r->outside_text};
    if (setjmp(r->no_memory)) return 1;
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        if (!tables[k]->start.size) add_i8(r, &tables[k]->start, 0);
    for (int k = 0; k < TEXTS; k++)
        if (!r->texts[k].table.start.size) add_i8(r, &r->texts[k].table.start, 0);
    start_lists(r);
    return 0;
}

/* Lines, rows, problems; whether the log ends within a line, and with a blank one; whether the line before its last
   record is blank; and the last three of `Contents` in records.py. */
void reader_state(const Reader *r, int64_t *state)
{
    int64_t names = count_of(&r->modules) + count_of(&r->ops) + count_of(&r->shapes) + count_of(&r->locations);
    int64_t values = (r->outputs.value.size + r->inputs.value.size + r->digests.value.size + r->input_digests.value.size) / 8
                     + r->producers.value.size / 4;
    const int64_t all[] = {r->lines, r->rows, r->problems, r->open, r->ends_blank, r->blank_before_last, names, values,
                           count_of(&r->further_names)};
    memcpy(state, all, sizeof all);
}

/* Bytes of a column, -1 for one that does not exist. */
int64_t reader_size(Reader *r, int64_t k) { return k < 0 || k >= COLUMN_COUNT ? -1 : column_at(r, k)->size; }

/* The bytes of a column, which the caller frees with `reader_give_back`; NULL for an empty one. */
void *reader_take(Reader *r, int64_t k)
{
    Column *c = column_at(r, k);
    void *at = c->size ? realloc(c->at, (size_t)c->size) : NULL; /* without the room at its end */
    if (c->size && !at) at = c->at;
    if (!c->size) free(c->at);
    *c = (Column){NULL, 0, 0};
    return at;
}

void reader_give_back(void *column) { free(column); }
