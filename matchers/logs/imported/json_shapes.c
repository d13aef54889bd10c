/* Splits JSON texts into shape and content: `json_shapes.py` says how, and does the same more slowly (docs/importers.md).
 *
 * A shape is the text without spaces, in which a mark stands for each number, and for each string with a digit, an escape
 * or a character beyond ASCII; of strings that are taken apart, for each number in them: thousands of records of a log have
 * one shape. What is no JSON, is nested deeper than DEPTH, or has a number of thousands of digits is left to the caller.
 * Nothing is allocated; no output is larger than the text, which has a zero after it.
 */

#include <float.h>
#include <stdint.h>
#include <string.h>

enum { WHOLE = 1, REAL, TEXT, ESCAPED, LARGE, DEPTH = 64, LONGEST_NUMBER = 4000, LONGEST_PLAIN = 64 };

typedef struct {
    const uint8_t *text;
    int64_t size;
    const char *apart;                  /* keys of texts to take apart, each with a zero after it, and one more */
    const char *nest;                   /* key of a list of records within a record, as before; empty: there is none */
    int by_line;
    int64_t lines;                      /* line breaks so far */
    uint8_t *shape, *strings, *hard, *names;  /* each entry with a line break after it */
    int64_t shapes, string_bytes, hard_bytes, name_bytes;
    double *number;
    int64_t *hard_number;               /* which numbers are left to the caller, as text */
    int64_t numbers, hards, many_strings;
} Split;

enum { ENDS = 1, DIGIT = 2, BEYOND = 4, LETTER = 8 };

/* What a character is: one at which a string ends or is no longer plain; a digit; beyond ASCII; of a word. */
static const uint8_t KIND[256] = {[0 ... 0x1f] = ENDS, ['"'] = ENDS, ['\\'] = ENDS, ['0' ... '9'] = DIGIT,
                                  ['a' ... 'z'] = LETTER, ['A' ... 'Z'] = LETTER, ['_'] = LETTER, ['.'] = LETTER,
                                  [0x80 ... 0xff] = BEYOND};

static int is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static int64_t space(Split *s, int64_t i)
{
    if (s->text[i] > ' ')
        return i;
    for (; i < s->size; i++) {
        const uint8_t c = s->text[i];
        if (c == '\n' && !s->by_line)
            s->lines++;
        else if (c != ' ' && c != '\t' && c != '\r')
            break;
    }
    return i;
}

static void add(uint8_t *out, int64_t *size, const uint8_t *from, int64_t many)
{
    memcpy(out + *size, from, (size_t)many);
    *size += many;
    out[(*size)++] = '\n';
}

static int is_hex(uint8_t c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

static int64_t number(Split *s, int64_t i, int apart);

static int is_wordlike(uint8_t c) { return KIND[c] & (DIGIT | LETTER); }

/* True for a key, with its quotes, that is one of these. */
static int is_one_of(const char *keys, const Split *s, int64_t start, int64_t end)
{
    const size_t many = (size_t)(end - start - 2);
    for (const char *one = keys; *one; one += strlen(one) + 1)
        if (strlen(one) == many && !memcmp(one, s->text + start + 1, many))
            return 1;
    return 0;
}

/* Add the text between two places to the shape, with marks for the numbers in it that no letter or point touches. */
static void take_apart(Split *s, int64_t i, int64_t end)
{
    const uint8_t *text = s->text;
    for (int64_t first = i; first < end; i++) {
        int64_t after = -1;
        if (i < end && (!is_digit(text[i]) || is_wordlike(text[i - 1])))
            continue;
        memcpy(s->shape + s->shapes, text + first, (size_t)(i - first));
        s->shapes += i - first;
        first = i;
        if (i < end && (after = number(s, i, 1)) > 0)
            first = after, i = after - 1;
    }
}

/* The place after the string that begins here; -1: it is none. A key is part of the shape. */
static int64_t string(Split *s, int64_t i, int key, int apart)
{
    const int64_t start = ++i;
    int seen = 0, escaped = 0;
    for (const uint8_t *text = s->text;; i++) {
        while (!(KIND[text[i]] & ENDS))
            seen |= KIND[text[i++]];
        if (text[i] == '"')
            break;
        if (text[i] != '\\' || i >= s->size)  /* a character that no string has, or the end */
            return -1;
        escaped = 1;
        i++;
        if (text[i] == 'u') {
            for (int k = 1; k <= 4; k++, i++)
                if (!is_hex(text[i + 1]))
                    return -1;
        } else if (!text[i] || !strchr("\"\\/bfnrt", text[i]))
            return -1;
    }
    if (seen & BEYOND && s->by_line)  /* a line may be no UTF-8 */
        return -1;
    if (apart && !escaped) {
        s->shape[s->shapes++] = '"';
        take_apart(s, start, i);
        s->shape[s->shapes++] = '"';
    } else if (!key && (seen & (DIGIT | BEYOND) || escaped || i - start > LONGEST_PLAIN)) {
        s->shape[s->shapes++] = escaped ? ESCAPED : TEXT;
        add(s->strings, &s->string_bytes, s->text + start, i - start);
        s->many_strings++;
    } else {
        memcpy(s->shape + s->shapes, s->text + start - 1, (size_t)(i - start + 2));
        s->shapes += i - start + 2;
    }
    return i + 1;
}

static int64_t word(Split *s, int64_t i, const char *wanted)
{
    const int64_t many = (int64_t)strlen(wanted);
    return i + many <= s->size && !memcmp(s->text + i, wanted, (size_t)many) ? i + many : -1;
}

/* True if a number of 19 digits and an exponent is a double without doubt: computed with eleven bits more, it is not near the
   middle between two. */
static int rounded(uint64_t digits, int exponent, double *value)
{
#if LDBL_MANT_DIG == 64
    static const long double power[] = {1e0L, 1e1L, 1e2L, 1e3L, 1e4L, 1e5L, 1e6L, 1e7L, 1e8L, 1e9L, 1e10L, 1e11L, 1e12L,
                                        1e13L, 1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L, 1e21L, 1e22L, 1e23L,
                                        1e24L, 1e25L, 1e26L, 1e27L};
    if (!digits || exponent < -27 || exponent > 27)
        return 0;
    const long double wide = exponent < 0 ? digits / power[-exponent] : digits * power[exponent];
    uint64_t bits;
    memcpy(&bits, &wide, sizeof bits);
    const int below = (int)(bits & 2047);
    *value = (double)wide;
    return below < 1022 || below > 1026;
#else
    (void)digits, (void)exponent, (void)value;
    return 0;
#endif
}

/* The place after the whole number of at most 15 digits that begins here, as most do; the same place: it is another one. */
static int64_t few_digits(Split *s, int64_t i)
{
    const uint8_t *c = s->text + i;
    int many = 0;
    double value = 0;
    while (many < 15 && is_digit(c[many]))
        value = value * 10 + (c[many++] - '0');
    if (!many || (many > 1 && *c == '0') || is_wordlike(c[many]))
        return i;
    s->shape[s->shapes++] = WHOLE;
    s->number[s->numbers++] = value;
    return i + many;
}

/* The place after the number that begins here; -1: it is none, or is in a text and a word goes on after it. One that a
   double has exactly is read, other ones are left as text. */
static int64_t number(Split *s, int64_t i, int apart)
{
    static const double power[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const int64_t after = few_digits(s, i);
    if (after > i)
        return after;
    const int64_t start = i;
    const int minus = s->text[i] == '-';
    uint64_t digits = 0;
    int many = 0, exponent = 0, whole = 1, exact = 1, known = 0;
    i += minus;
    if (!is_digit(s->text[i])) {
        i = s->text[i] == 'I' ? word(s, i, "Infinity") : minus ? -1 : word(s, i, "NaN");
        whole = exact = 0;
    } else {
        const int zero = s->text[i] == '0';
        for (; is_digit(s->text[i]); i++, many += many || digits)
            digits = digits * 10 + (uint64_t)(s->text[i] - '0');
        if (zero && i - start - minus > 1)
            return -1;
        if (s->text[i] == '.' && is_digit(s->text[i + 1])) {
            whole = 0;
            for (i++; is_digit(s->text[i]); i++, exponent--, many += many || digits)
                digits = digits * 10 + (uint64_t)(s->text[i] - '0');
        }
        if (s->text[i] == 'e' || s->text[i] == 'E') {
            int64_t j = i + 1;
            j += s->text[j] == '+' || s->text[j] == '-';
            if (is_digit(s->text[j])) {
                const int below = s->text[j - 1] == '-';
                int told = 0;
                for (; is_digit(s->text[j]); j++)
                    told = told < 1000 ? told * 10 + s->text[j] - '0' : told;
                exponent += below ? -told : told;
                whole = 0;
                i = j;
            }
        }
        known = many <= 19;
        exact = many <= 18 && digits < (1ULL << 53) && exponent >= -22 && exponent <= 22;
    }
    if (i < 0 || i - start > LONGEST_NUMBER || (apart && is_wordlike(s->text[i])))
        return -1;
    if (whole && !exact) {
        s->shape[s->shapes++] = LARGE;
        add(s->strings, &s->string_bytes, s->text + start, i - start);
        s->many_strings++;
        return i;
    }
    double value = (double)digits;
    if (exact)
        value = exponent < 0 ? value / power[-exponent] : value * power[exponent];
    else if (!known || !rounded(digits, exponent, &value)) {
        s->hard_number[s->hards++] = s->numbers;
        add(s->hard, &s->hard_bytes, s->text + start, i - start);
    }
    s->shape[s->shapes++] = whole ? WHOLE : REAL;
    s->number[s->numbers++] = minus && (digits || !whole) ? -value : value;
    return i;
}

/* The place after the value that begins here; -1: it is none, or not whole. */
static int64_t value(Split *s, int64_t i)
{
    uint8_t open[DEPTH];
    int depth = 0, key = 0, apart = 0, nest = 0;
    for (;;) {
        i = space(s, i);
        if (i >= s->size)
            return -1;
        const uint8_t c = s->text[i];
        if (key) {
            const int64_t start = i;
            if (c != '"' || (i = string(s, i, 1, 0)) < 0)
                return -1;
            apart = is_one_of(s->apart, s, start, i);
            nest = depth == 1 && is_one_of(s->nest, s, start, i);
            if ((i = space(s, i)) >= s->size || s->text[i] != ':')
                return -1;
            s->shape[s->shapes++] = ':';
            i++;
            key = 0;
            continue;
        }
        if (c == '{' || c == '[') {
            s->shape[s->shapes++] = c;
            i = space(s, i + 1);
            if (i >= s->size || depth == DEPTH)
                return -1;
            if (nest && c == '[' && s->text[i] != ']') {
                memcpy(s->shape + s->shapes, "0]}", 3);
                s->shapes += 3;
                return i;
            }
            open[depth++] = c;
            apart = nest = 0;
            if (s->text[i] != c + 2) {  /* the bracket that closes it */
                key = c == '{';
                continue;
            }
        } else if (c == '"') {
            i = string(s, i, 0, apart);
        } else if (c == '-' || is_digit(c) || c == 'N' || c == 'I') {
            i = number(s, i, 0);
        } else {
            const char *told = c == 't' ? "true" : c == 'f' ? "false" : "null";
            const int64_t after = word(s, i, told);
            if (after >= 0) {
                memcpy(s->shape + s->shapes, told, (size_t)(after - i));
                s->shapes += after - i;
            }
            i = after;
        }
        apart = nest = 0;
        for (;;) {  /* what has ended here */
            if (i < 0 || !depth)
                return i;
            i = space(s, i);
            if (i >= s->size)
                return -1;
            const uint8_t next = s->text[i++];
            s->shape[s->shapes++] = next;
            if (next == ',') {
                key = open[depth - 1] == '{';
                break;
            }
            if (next != open[depth - 1] + 2)
                return -1;
            depth--;
        }
    }
}

/* Split the values at the beginning of a text, at most so many; return how many.

   A record is five numbers: line breaks before it, the place after it, and the number of numbers, strings and hard numbers
   up to its end. Between values there may be spaces, commas and colons; with `by_line` line breaks alone, and each value
   fills its line. With `names`, each value has a name before it, without escapes, that is no part of it. With `nest`, a record
   ends where its list begins, as if that were `[0]` and the last in it, the records of the list follow, and then one of the
   shape `]`. `used`: bytes of shapes, strings, hard numbers and names. */
int64_t json_split(const uint8_t *text, int64_t size, const char *apart, const char *nest, int by_line, int last,
                   int64_t most, int64_t *record, uint8_t *shape, double *numbers, uint8_t *strings, int64_t *hard_number,
                   uint8_t *hard, uint8_t *names, int64_t *used)
{
    Split s = {.text = text, .size = size, .apart = apart, .nest = nest, .by_line = by_line, .shape = shape, .strings = strings,
               .hard = hard, .number = numbers, .hard_number = hard_number, .names = names};
    int64_t i = 0, found = 0;
    Split before = s;
    while (found < most) {
        while (i < size && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n' ||
                            (!by_line && (text[i] == ',' || text[i] == ':'))))
            s.lines += text[i++] == '\n';
        const int64_t line = s.lines;
        int64_t after;
        if (names) {
            const int64_t start = i;
            if (text[i] != '"' || (i = string(&s, i, 1, 0)) < 0 || memchr(text + start, '\\', (size_t)(i - start)))
                break;
            s.shapes = before.shapes;
            add(names, &s.name_bytes, text + start + 1, i - start - 2);
            if ((i = space(&s, i)) >= size || text[i++] != ':')
                break;
        }
        if (*nest && text[i] == ']') {
            after = space(&s, i + 1);
            if (after >= size || text[after++] != '}')
                break;
            s.shape[s.shapes++] = ']';
        } else if ((after = value(&s, i)) < 0)
            break;
        if (by_line) {
            after = space(&s, after);
            if (after < size ? text[after] != '\n' : !last)
                break;
        } else if (after == size && is_digit(text[after - 1]))
            break;  /* a number that may go on */
        s.shape[s.shapes++] = '\n';
        int64_t *out = record + 5 * found++;
        out[0] = line, out[1] = i = after, out[2] = s.numbers, out[3] = s.many_strings, out[4] = s.hards;
        before = s;
    }
    used[0] = before.shapes, used[1] = before.string_bytes, used[2] = before.hard_bytes,
    used[3] = before.name_bytes;
    return found;
}
