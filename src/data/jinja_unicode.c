/* Characters for the Jinja interpreter: case, white space, classes, as Python's str has them.
 *
 * Case is Unicode's full mapping: utf8proc's simple one plus SpecialCasing.txt's unconditional
 * rows, and the final sigma for lower case.
 * SPDX-License-Identifier: Apache-2.0 */
#include "data/jinja_int.h"

#include <utf8proc.h>

struct special {
    int32_t point, upper[3], title[3];
};

/* Characters whose upper or title case has several characters, ascending. */
static const struct special specials[] = {
    {0xdf, {0x53, 0x53}, {0x53, 0x73}},
    {0x149, {0x2bc, 0x4e}, {0x2bc, 0x4e}},
    {0x1f0, {0x4a, 0x30c}, {0x4a, 0x30c}},
    {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x3b0, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x587, {0x535, 0x552}, {0x535, 0x582}},
    {0x1e96, {0x48, 0x331}, {0x48, 0x331}},
    {0x1e97, {0x54, 0x308}, {0x54, 0x308}},
    {0x1e98, {0x57, 0x30a}, {0x57, 0x30a}},
    {0x1e99, {0x59, 0x30a}, {0x59, 0x30a}},
    {0x1e9a, {0x41, 0x2be}, {0x41, 0x2be}},
    {0x1f50, {0x3a5, 0x313}, {0x3a5, 0x313}},
    {0x1f52, {0x3a5, 0x313, 0x300}, {0x3a5, 0x313, 0x300}},
    {0x1f54, {0x3a5, 0x313, 0x301}, {0x3a5, 0x313, 0x301}},
    {0x1f56, {0x3a5, 0x313, 0x342}, {0x3a5, 0x313, 0x342}},
    {0x1f80, {0x1f08, 0x399}, {0x1f88}},
    {0x1f81, {0x1f09, 0x399}, {0x1f89}},
    {0x1f82, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f83, {0x1f0b, 0x399}, {0x1f8b}},
    {0x1f84, {0x1f0c, 0x399}, {0x1f8c}},
    {0x1f85, {0x1f0d, 0x399}, {0x1f8d}},
    {0x1f86, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f87, {0x1f0f, 0x399}, {0x1f8f}},
    {0x1f88, {0x1f08, 0x399}, {0x1f88}},
    {0x1f89, {0x1f09, 0x399}, {0x1f89}},
    {0x1f8a, {0x1f0a, 0x399}, {0x1f8a}},
    {0x1f8b, {0x1f0b, 0x399}, {0x1f8b}},
    {0x1f8c, {0x1f0c, 0x399}, {0x1f8c}},
    {0x1f8d, {0x1f0d, 0x399}, {0x1f8d}},
    {0x1f8e, {0x1f0e, 0x399}, {0x1f8e}},
    {0x1f8f, {0x1f0f, 0x399}, {0x1f8f}},
    {0x1f90, {0x1f28, 0x399}, {0x1f98}},
    {0x1f91, {0x1f29, 0x399}, {0x1f99}},
    {0x1f92, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f93, {0x1f2b, 0x399}, {0x1f9b}},
    {0x1f94, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f95, {0x1f2d, 0x399}, {0x1f9d}},
    {0x1f96, {0x1f2e, 0x399}, {0x1f9e}},
    {0x1f97, {0x1f2f, 0x399}, {0x1f9f}},
    {0x1f98, {0x1f28, 0x399}, {0x1f98}},
    {0x1f99, {0x1f29, 0x399}, {0x1f99}},
    {0x1f9a, {0x1f2a, 0x399}, {0x1f9a}},
    {0x1f9b, {0x1f2b, 0x399}, {0x1f9b}},
    {0x1f9c, {0x1f2c, 0x399}, {0x1f9c}},
    {0x1f9d, {0x1f2d, 0x399}, {0x1f9d}},
    {0x1f9e, {0x1f2e, 0x399}, {0x1f9e}},
    {0x1f9f, {0x1f2f, 0x399}, {0x1f9f}},
    {0x1fa0, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa1, {0x1f69, 0x399}, {0x1fa9}},
    {0x1fa2, {0x1f6a, 0x399}, {0x1faa}},
    {0x1fa3, {0x1f6b, 0x399}, {0x1fab}},
    {0x1fa4, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fa5, {0x1f6d, 0x399}, {0x1fad}},
    {0x1fa6, {0x1f6e, 0x399}, {0x1fae}},
    {0x1fa7, {0x1f6f, 0x399}, {0x1faf}},
    {0x1fa8, {0x1f68, 0x399}, {0x1fa8}},
    {0x1fa9, {0x1f69, 0x399}, {0x1fa9}},
    {0x1faa, {0x1f6a, 0x399}, {0x1faa}},
    {0x1fab, {0x1f6b, 0x399}, {0x1fab}},
    {0x1fac, {0x1f6c, 0x399}, {0x1fac}},
    {0x1fad, {0x1f6d, 0x399}, {0x1fad}},
    {0x1fae, {0x1f6e, 0x399}, {0x1fae}},
    {0x1faf, {0x1f6f, 0x399}, {0x1faf}},
    {0x1fb2, {0x1fba, 0x399}, {0x1fba, 0x345}},
    {0x1fb3, {0x391, 0x399}, {0x1fbc}},
    {0x1fb4, {0x386, 0x399}, {0x386, 0x345}},
    {0x1fb6, {0x391, 0x342}, {0x391, 0x342}},
    {0x1fb7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}},
    {0x1fbc, {0x391, 0x399}, {0x1fbc}},
    {0x1fc2, {0x1fca, 0x399}, {0x1fca, 0x345}},
    {0x1fc3, {0x397, 0x399}, {0x1fcc}},
    {0x1fc4, {0x389, 0x399}, {0x389, 0x345}},
    {0x1fc6, {0x397, 0x342}, {0x397, 0x342}},
    {0x1fc7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}},
    {0x1fcc, {0x397, 0x399}, {0x1fcc}},
    {0x1fd2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
    {0x1fd3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
    {0x1fd6, {0x399, 0x342}, {0x399, 0x342}},
    {0x1fd7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
    {0x1fe2, {0x3a5, 0x308, 0x300}, {0x3a5, 0x308, 0x300}},
    {0x1fe3, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
    {0x1fe4, {0x3a1, 0x313}, {0x3a1, 0x313}},
    {0x1fe6, {0x3a5, 0x342}, {0x3a5, 0x342}},
    {0x1fe7, {0x3a5, 0x308, 0x342}, {0x3a5, 0x308, 0x342}},
    {0x1ff2, {0x1ffa, 0x399}, {0x1ffa, 0x345}},
    {0x1ff3, {0x3a9, 0x399}, {0x1ffc}},
    {0x1ff4, {0x38f, 0x399}, {0x38f, 0x345}},
    {0x1ff6, {0x3a9, 0x342}, {0x3a9, 0x342}},
    {0x1ff7, {0x3a9, 0x342, 0x399}, {0x3a9, 0x342, 0x345}},
    {0x1ffc, {0x3a9, 0x399}, {0x1ffc}},
    {0xfb00, {0x46, 0x46}, {0x46, 0x66}},
    {0xfb01, {0x46, 0x49}, {0x46, 0x69}},
    {0xfb02, {0x46, 0x4c}, {0x46, 0x6c}},
    {0xfb03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
    {0xfb04, {0x46, 0x46, 0x4c}, {0x46, 0x66, 0x6c}},
    {0xfb05, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb06, {0x53, 0x54}, {0x53, 0x74}},
    {0xfb13, {0x544, 0x546}, {0x544, 0x576}},
    {0xfb14, {0x544, 0x535}, {0x544, 0x565}},
    {0xfb15, {0x544, 0x53b}, {0x544, 0x56b}},
    {0xfb16, {0x54e, 0x546}, {0x54e, 0x576}},
    {0xfb17, {0x544, 0x53d}, {0x544, 0x56d}},
};

int32_t ebb_jin_point(const char *data, size_t bytes, size_t at, size_t *length)
{
    const unsigned char *c = (const unsigned char *)data + at;
    size_t left = bytes - at;
    if (c[0] < 0x80 || left < 2) {
        *length = 1;
        return c[0];
    }
    if (c[0] < 0xe0 || left < 3) {
        *length = 2;
        return (c[0] & 0x1f) << 6 | (c[1] & 0x3f);
    }
    if (c[0] < 0xf0 || left < 4) {
        *length = 3;
        return (c[0] & 0x0f) << 12 | (c[1] & 0x3f) << 6 | (c[2] & 0x3f);
    }
    *length = 4;
    return (c[0] & 0x07) << 18 | (c[1] & 0x3f) << 12 | (c[2] & 0x3f) << 6 | (c[3] & 0x3f);
}

size_t ebb_jin_put_point(int32_t point, char out[4])
{
    return (size_t)utf8proc_encode_char(point, (utf8proc_uint8_t *)out);
}

bool ebb_jin_is_space(int32_t point)
{
    return (point >= 9 && point <= 13) || (point >= 0x1c && point <= 0x20) || point == 0x85 ||
           point == 0xa0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200a) ||
           point == 0x2028 || point == 0x2029 || point == 0x202f || point == 0x205f ||
           point == 0x3000;
}

static utf8proc_category_t category(int32_t point)
{
    return utf8proc_category(point);
}

bool ebb_jin_is_printable(int32_t point)
{
    if (point == ' ') return true;
    utf8proc_category_t c = category(point);
    return c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS;
}

bool ebb_jin_is_alpha(int32_t point)
{
    utf8proc_category_t c = category(point);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool ebb_jin_is_decimal(int32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_ND;
}

/* Superscripts and circled digits have digit values too; that of the last ones is in no table of
 * utf8proc, so the ranges stand here. */
bool ebb_jin_is_digit(int32_t point)
{
    return ebb_jin_is_decimal(point) || point == 0xb2 || point == 0xb3 || point == 0xb9 ||
           point == 0x2070 || (point >= 0x2074 && point <= 0x2079) ||
           (point >= 0x2080 && point <= 0x2089) || (point >= 0x2460 && point <= 0x2468) ||
           (point >= 0x2474 && point <= 0x247c) || (point >= 0x2488 && point <= 0x2490) ||
           point == 0x24ea || (point >= 0x24f5 && point <= 0x24fd) || point == 0x24ff ||
           (point >= 0x2776 && point <= 0x277e) || (point >= 0x2780 && point <= 0x2788) ||
           (point >= 0x278a && point <= 0x2792);
}

bool ebb_jin_is_numeric(int32_t point)
{
    utf8proc_category_t c = category(point);
    return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool ebb_jin_is_word(int32_t point)
{
    if (point < 0x80)
        return point == '_' || (point >= '0' && point <= '9') || (point >= 'a' && point <= 'z') ||
               (point >= 'A' && point <= 'Z');
    return ebb_jin_is_alpha(point) || ebb_jin_is_numeric(point);
}

bool ebb_jin_is_upper(int32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LU || (point >= 0x2160 && point <= 0x216f) ||
           (point >= 0x24b6 && point <= 0x24cf);
}

bool ebb_jin_is_lower(int32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LL || point == 0xaa || point == 0xba ||
           (point >= 0x2170 && point <= 0x217f) || (point >= 0x24d0 && point <= 0x24e9);
}

bool ebb_jin_is_title(int32_t point)
{
    return category(point) == UTF8PROC_CATEGORY_LT;
}

static const struct special *find_special(int32_t point)
{
    size_t low = 0, high = sizeof specials / sizeof specials[0];
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (specials[middle].point == point) return &specials[middle];
        if (specials[middle].point < point)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static bool is_cased(int32_t point)
{
    return ebb_jin_is_upper(point) || ebb_jin_is_lower(point) || ebb_jin_is_title(point);
}

/* Marks, format characters and some punctuation stand between letters without ending a word. */
static bool is_ignorable(int32_t point)
{
    utf8proc_category_t c = category(point);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || point == '\'' ||
           point == '.' || point == ':' || point == 0xb7 || point == 0x387 || point == 0x2018 ||
           point == 0x2019 || point == 0x2024 || point == 0x2027;
}

/* Is the capital sigma at `at` the last letter of a word of several letters? */
static bool is_final_sigma(const char *data, size_t bytes, size_t at)
{
    bool before = false;
    size_t length, i = at;
    while (i > 0) {
        do i--;
        while (i > 0 && ((unsigned char)data[i] & 0xc0) == 0x80);
        int32_t point = ebb_jin_point(data, bytes, i, &length);
        if (is_ignorable(point)) continue;
        before = is_cased(point);
        break;
    }
    if (!before) return false;
    for (i = at + 2; i < bytes; i += length) {
        int32_t point = ebb_jin_point(data, bytes, i, &length);
        if (!is_ignorable(point)) return !is_cased(point);
    }
    return true;
}

enum ebb_status ebb_jin_add_cased(struct ebb_jin_run *run, struct ebb_jin_buf *buf,
                                  enum ebb_jin_case way, const char *data, size_t bytes, size_t at)
{
    size_t length;
    char out[16];
    int32_t point = ebb_jin_point(data, bytes, at, &length), one[3] = {0, 0, 0};
    const int32_t *mapped = one;
    const struct special *special =
        point >= 0x80 && way != EBB_CASE_LOWER ? find_special(point) : NULL;
    if (special != NULL) {
        mapped = way == EBB_CASE_UPPER ? special->upper : special->title;
    } else if (way == EBB_CASE_LOWER) {
        one[0] = utf8proc_tolower(point);
        if (point == 0x130) { /* I with a dot */
            one[0] = 'i';
            one[1] = 0x307;
        } else if (point == 0x3a3 && is_final_sigma(data, bytes, at)) {
            one[0] = 0x3c2;
        }
    } else {
        one[0] = way == EBB_CASE_UPPER ? utf8proc_toupper(point) : utf8proc_totitle(point);
    }
    size_t used = 0;
    for (int i = 0; i < 3 && (i == 0 || mapped[i] != 0); i++)
        used += ebb_jin_put_point(mapped[i], out + used);
    return ebb_jin_buf_add(run, buf, out, used);
}

size_t ebb_jin_space_prefix(const char *data, size_t bytes)
{
    size_t at = 0, length;
    while (at < bytes && ebb_jin_is_space(ebb_jin_point(data, bytes, at, &length))) at += length;
    return at;
}

size_t ebb_jin_space_suffix(const char *data, size_t bytes)
{
    size_t end = bytes, length;
    while (end > 0) {
        size_t at = end;
        do at--;
        while (at > 0 && ((unsigned char)data[at] & 0xc0) == 0x80);
        if (!ebb_jin_is_space(ebb_jin_point(data, bytes, at, &length))) break;
        end = at;
    }
    return bytes - end;
}

size_t ebb_jin_line_end(const char *data, size_t bytes, size_t at)
{
    size_t length;
    int32_t point = ebb_jin_point(data, bytes, at, &length);
    if (point == '\r') return at + 1 < bytes && data[at + 1] == '\n' ? 2 : 1;
    if ((point >= '\n' && point <= '\f') || (point >= 0x1c && point <= 0x1e) || point == 0x85 ||
        point == 0x2028 || point == 0x2029)
        return length;
    return 0;
}
