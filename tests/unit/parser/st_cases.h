/* safetensors files and their verdicts: the numbered bad inputs 1-31, and other files that the reference
 * (huggingface/safetensors) accepts or refuses. `at` is the text of the header where the fault's position must be;
 * `says` is part of the message. `listing` has the tensors of an accepted file, one line `name dtype [shape]
 * begin+nbytes` each, in the order of names. */
#ifndef TD_TESTS_UNIT_PARSER_ST_CASES_H
#define TD_TESTS_UNIT_PARSER_ST_CASES_H

#include "core/error.h"

#include <stddef.h>

struct st_case {
    const char *name;
    const char *header;
    size_t header_len;
    size_t data_len;
    enum td_code code; /* TD_OK: accepted */
    const char *at;
    const char *says;
    const char *listing;
};

#define H(text) text, sizeof(text) - 1
#define GOOD(name, header, data_len, listing)                 \
    {                                                         \
        name, H(header), data_len, TD_OK, NULL, NULL, listing \
    }
#define BAD(name, header, data_len, at, says)                          \
    {                                                                  \
        name, H(header), data_len, TD_INVALID_ARGUMENT, at, says, NULL \
    }

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static const struct st_case st_cases[] = {
    BAD("bad_07_header_ff", "\xff", 8, "\xff", "not JSON"),
    BAD("bad_07_name_ff", "{" T("a\xff", "U8", "[1]", 0, 1) "}", 1, "\xff", "not UTF-8"),
    BAD("bad_08_open_brace", "{", 8, NULL, "ends too early"),
    BAD("bad_09_ten_tensors_on_one_range",
        "{" T("a", "F32", "[2]", 0, 8) "," T("b", "F32", "[2]", 0, 8) "," T("c", "F32", "[2]", 0, 8) "," T(
            "d", "F32", "[2]", 0, 8) "," T("e", "F32", "[2]", 0,
                                           8) "," T("f", "F32", "[2]", 0,
                                                    8) "," T("g", "F32", "[2]", 0,
                                                             8) "," T("h", "F32", "[2]", 0,
                                                                      8) "," T("i", "F32", "[2]", 0,
                                                                               8) "," T("j", "F32", "[2]", 0, 8) "}",
        8, "\"b\"", "within the tensor before it, which ends at 8"),
    BAD("bad_10_trailing_bytes", "{" T("a", "U8", "[4]", 0, 4) "}", 5, NULL, "end at data byte 4"),
    BAD("bad_11_two_data_bytes_missing", "{" T("a", "U8", "[4]", 0, 4) "}", 2, "[0,4]", "has 2 bytes of data"),
    BAD("bad_12_shape_wraps_to_small", "{" T("a", "U8", "[2,18446744073709551614]", 0, 4) "}", 4, "[2,184",
        "larger than 2^64-1"),
    BAD("bad_13_size_wraps", "{" T("a", "I32", "[2,9223372036854775807]", 0, 4) "}", 4, "[0,4]",
        "18446744073709551614 elements of I32"),
    BAD("bad_13_size_wraps_to_the_same", "{" T("a", "I32", "[2,9223372036854775809]", 0, 8) "}", 8, "[2,92",
        "larger than 2^64-1"),
    BAD("bad_14_no_elements_16_bytes", "{" T("a", "F32", "[0,4]", 0, 16) "}", 16, "[0,16]",
        "0 elements of F32 do not take the 16 bytes"),
    BAD("bad_15_gap", "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 3, 5) "}", 5, "\"b\"",
        "the bytes from 2 on belong to no tensor"),
    BAD("bad_15_gap_at_the_start", "{" T("a", "U8", "[2]", 1, 3) "}", 3, "\"a\"", "from 0 on belong to no"),
    BAD("bad_15_gap_out_of_order", "{" T("b", "U8", "[2]", 3, 5) "," T("a", "U8", "[2]", 0, 2) "}", 5, "\"b\"",
        "the bytes from 2 on belong to no tensor"),
    BAD("bad_16_end_before_begin", "{" T("a", "U8", "[2]", 4, 2) "}", 4, "[4,2]", "end before they begin"),
    BAD("bad_17_offset_string", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[\"0\",1]}}", 1, "\"0\"",
        "two whole numbers"),
    BAD("bad_17_offset_fraction", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.0]}}", 1, "1.0",
        "1.0 is not a whole number"),
    BAD("bad_17_offset_negative", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[-1,0]}}", 1, "-1",
        "-1 is not a whole number"),
    BAD("bad_17_offset_exponent", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1e0]}}", 1, "1e0",
        "1e0 is not a whole number"),
    BAD("bad_17_offset_null", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[null,1]}}", 1, "null",
        "two whole"),
    BAD("bad_17_offset_2_64", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]}}", 1,
        "184467", "larger than 2^64-1"),
    BAD("bad_17_offsets_object", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"0\":0}}}", 1, "{\"0\"",
        "must be an array"),
    BAD("bad_18_f4_odd", "{" T("a", "F4", "[3]", 0, 2) "}", 2, "[3]", "3 elements of F4 do not fill whole bytes"),
    BAD("bad_18_f6_not_by_four", "{" T("a", "F6_E2M3", "[6]", 0, 5) "}", 5, "[6]", "multiple of 4"),
    BAD("bad_19_unknown_dtype", "{" T("a", "F128", "[1]", 0, 16) "}", 16, "\"F128\"", "known: BOOL "),
    BAD("bad_19_lower_case_dtype", "{" T("a", "f32", "[1]", 0, 4) "}", 4, "\"f32\"", "unknown dtype \"f32\"; known: "),
    BAD("bad_19_dtype_is_a_number", "{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "32",
        "must be a string"),
    BAD("bad_19_dtype_is_an_object", "{\"a\":{\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
        "{\"F32\"", "must be a string"),
    BAD("bad_20_duplicate_tensor", "{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}", 2,
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1", "two tensors are named \"a\""),
    BAD("bad_20_duplicate_tensor_same_range", "{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 0, 1) " }", 1,
        "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]} }", "two tensors"),
    BAD("bad_20_duplicate_tensor_escaped",
        "{" T("ab", "U8", "[1]", 0, 1) "," T("b", "U8", "[1]", 1, 2) "," T("\\u0061b", "U8", "[1]", 2, 3) "}", 3,
        "\"\\u0061b\"", "two tensors are named \"ab\""),
    BAD("bad_20_duplicate_dtype", "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
        "\"dtype\":\"U8\",\"shape\"", "dtype is given twice"),
    BAD("bad_20_duplicate_shape", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"\\u0073hape\":[1]}}",
        1, "\"\\u0073", "shape is given twice"),
    BAD("bad_20_duplicate_offsets",
        "{\"a\":{\"data_offsets\":[0,1],\"data_offsets\":[0,1],\"dtype\":\"U8\",\"shape\":[1]}}", 1,
        "\"data_offsets\":[0,1],\"dtype\"", "data_offsets is given twice"),
    BAD("bad_20_duplicate_metadata", "{\"__metadata__\":{},\"__metadata__\":{} }", 0, "\"__metadata__\":{} ",
        "__metadata__ is given twice"),
    BAD("bad_20_duplicate_metadata_key", "{\"__metadata__\":{\"b\":\"1\",\"a\":\"2\",\"\\u0062\":\"3\"}}", 0,
        "\"\\u0062", "holds \"b\" twice"),
    BAD("bad_21_metadata_integer", "{\"__metadata__\":{\"a\":1}}", 0, "1", "\"a\" must be a string"),
    BAD("bad_21_metadata_null_value", "{\"__metadata__\":{\"a\":null}}", 0, "null", "\"a\" must be a string"),
    BAD("bad_21_metadata_nested", "{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "{\"b\"", "must be a string"),
    BAD("bad_21_metadata_list", "{\"__metadata__\":[]}", 0, "[]", "must be an object of strings"),
    BAD("bad_21_metadata_text", "{\"__metadata__\":\"pt\"}", 0, "\"pt\"", "must be an object of strings"),
    BAD("bad_21_metadata_like_a_tensor", "{" T("__metadata__", "U8", "[1]", 0, 1) "}", 1, "[1]", "must be a string"),
    BAD("bad_22_three_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, "1]}}",
        "two numbers, not more"),
    BAD("bad_22_one_offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "]}}", "two whole"),
    BAD("bad_22_no_offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[]}}", 1, "]}}", "two whole"),
    BAD("bad_24_name_with_escaped_nul", "{" T("a\\u0000b", "U8", "[1]", 0, 1) "}", 1, "\"a\\u", "NUL"),
    BAD("bad_24_metadata_key_with_escaped_nul", "{\"__metadata__\":{\"a\\u0000b\":\"x\"}}", 0, "\"a\\u", "NUL"),
    BAD("bad_24_name_with_raw_nul", "{\"a\0b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, NULL,
        "raw control byte"),
    BAD("bad_25_lone_surrogate", "{" T("a\\ud800", "U8", "[1]", 0, 1) "}", 1, "\\ud800", "surrogate"),
    BAD("bad_25_reversed_surrogates", "{" T("a\\udc00\\ud800", "U8", "[1]", 0, 1) "}", 1, "\\udc00", "surrogate"),
    BAD("bad_25_surrogate_in_utf8", "{" T("a\xed\xa0\x80", "U8", "[1]", 0, 1) "}", 1, "\xed", "not UTF-8"),
    BAD("bad_25_lone_surrogate_in_metadata", "{\"__metadata__\":{\"a\":\"\\udfff\"}}", 0, "\\udfff", "surrogate"),
    BAD("bad_26_nul_padding", "{" T("a", "U8", "[1]", 0, 1) "}\0\0\0", 1, NULL, "not JSON: the end expected"),
    BAD("bad_26_nul_before", "\0{" T("a", "U8", "[1]", 0, 1) "}", 1, NULL, "not JSON: a value expected"),
    /* 27: the product of an empty tensor's sizes must not overflow, multiplied in the reference's order */
    GOOD("bad_27_zero_then_2_63", "{" T("a", "F32", "[0,9223372036854775808]", 0, 0) "}", 0,
         "a F32 [0,9223372036854775808] 0+0\n"),
    BAD("bad_27_2_63_then_2_then_zero", "{" T("a", "F32", "[9223372036854775808,2,0]", 0, 0) "}", 0, "[9223",
        "larger than 2^64-1"),
    BAD("bad_28_sum_overflows",
        "{" T("a", "U8", "[18446744073709551615]", 0, 18446744073709551615) "," T("b", "U8", "[2]",
                                                                                  18446744073709551615, 1) "}",
        1, "[0,18446744073709551615]", "has 1 bytes of data"),
    BAD("bad_28_end_plus_header_overflows", "{" T("a", "U8", "[18446744073709551608]", 0, 18446744073709551608) "}", 8,
        "[0,184", "end past the file"),
    GOOD("bad_29_two_by_none", "{" T("a", "F32", "[2,0]", 0, 0) "}", 0, "a F32 [2,0] 0+0\n"),
    GOOD("bad_30_scalar", "{" T("a", "F32", "[]", 0, 4) "}", 4, "a F32 [] 0+4\n"),
    GOOD("bad_31_leading_whitespace", " \t\r\n{" T("a", "U8", "[1]", 0, 1) "}", 1, "a U8 [1] 0+1\n"),

    /* accepted, as by the reference */
    GOOD("good_no_tensors", "{}", 0, ""),
    GOOD("good_trailing_blanks", "{" T("a", "U8", "[1]", 0, 1) "}   \n\t\r", 1, "a U8 [1] 0+1\n"),
    GOOD("good_blanks_everywhere",
         " { \"a\" : { \"dtype\" : \"U8\" , \"shape\" : [ 1 , 2 ] ,\n \"data_offsets\" : [ 0 , 2 ] } } ", 2,
         "a U8 [1,2] 0+2\n"),
    GOOD("good_members_in_any_order", "{\"a\":{\"data_offsets\":[0,6],\"shape\":[3],\"dtype\":\"BF16\"}}", 6,
         "a BF16 [3] 0+6\n"),
    GOOD("good_sorted_by_name_not_by_data",
         "{" T("c", "U8", "[1]", 5, 6) "," T("a", "U8", "[2]", 3, 5) "," T("b", "U8", "[3]", 0, 3) "}", 6,
         "a U8 [2] 3+2\nb U8 [3] 0+3\nc U8 [1] 5+1\n"),
    GOOD("good_sorted_by_data_not_by_name",
         "{" T("z", "F64", "[1]", 0, 8) "," T("m", "F32", "[1]", 8, 12) "," T("b", "U8", "[1]", 12,
                                                                              13) "," T("y", "U8", "[1]", 13, 14) "}",
         14, "b U8 [1] 12+1\nm F32 [1] 8+4\ny U8 [1] 13+1\nz F64 [1] 0+8\n"),
    GOOD("good_empty_tensors_between_others",
         "{" T("d", "U8", "[0]", 4, 4) "," T("c", "U8", "[2]", 2, 4) "," T("b", "U8", "[0]", 2, 2) "," T(
             "a", "U8", "[2]", 0, 2) "," T("e", "F32", "[0]", 0, 0) "}",
         4, "a U8 [2] 0+2\nb U8 [0] 2+0\nc U8 [2] 2+2\nd U8 [0] 4+0\ne F32 [0] 0+0\n"),
    GOOD("good_sub_byte_types",
         "{" T("a", "F4", "[2,3]", 0, 3) "," T("b", "F6_E3M2", "[4]", 3, 6) "," T("c", "F4", "[0]", 6, 6) "}", 6,
         "a F4 [2,3] 0+3\nb F6_E3M2 [4] 3+3\nc F4 [0] 6+0\n"),
    GOOD("good_escaped_names", "{" T("caf\\u00e9\\/\\ud83d\\ude00", "U8", "[1]", 0, 1) "}", 1,
         "caf\xc3\xa9/\xf0\x9f\x98\x80 U8 [1] 0+1\n"),
    GOOD("good_escaped_members_and_dtype",
         "{\"a\":{\"\\u0064type\":\"\\u0046\\u0033\\u0032\",\"shap\\u0065\":[1],\"data_offsets\":[0,4]}}", 4,
         "a F32 [1] 0+4\n"),
    GOOD("good_empty_name", "{" T("", "U8", "[1]", 0, 1) "}", 1, " U8 [1] 0+1\n"),
    GOOD("good_name_like_a_path", "{" T("../../etc/passwd", "U8", "[1]", 0, 1) "}", 1, "../../etc/passwd U8 [1] 0+1\n"),
    GOOD("good_unknown_members",
         "{\"a\":{\"x\":[{\"dtype\":\"F32\"}],\"dtype\":\"U8\",\"shape\":[1],"
         "\"y\":null,\"data_offsets\":[0,1],\"x\":1}}",
         1, "a U8 [1] 0+1\n"),
    GOOD("good_metadata",
         "{\"__metadata__\":{\"format\":\"pt\",\"a\":\"x\\n\\u0000\\\"\"}," T("a", "U8", "[1]", 0, 1) "}", 1,
         "a U8 [1] 0+1\nformat=\"pt\"\na=\"x\\n\\u0000\\\"\"\n"),
    GOOD("good_metadata_last", "{" T("a", "U8", "[1]", 0, 1) ",\"\\u005f_metadata__\":{\"\":\"\"}}", 1,
         "a U8 [1] 0+1\n=\"\"\n"),
    GOOD("good_metadata_null", "{\"__metadata__\":null}", 0, ""),
    GOOD("good_metadata_empty", "{\"__metadata__\":{}}", 0, ""),
    GOOD("good_metadata_full_of_braces",
         "{\"__metadata__\":{\"a\":\"{{{{{{{{{{{{{{{{\"}," T("a", "U8", "[1]", 0, 1) "}", 1,
         "a U8 [1] 0+1\na=\"{{{{{{{{{{{{{{{{\"\n"),
    GOOD("good_name_nearly_metadata", "{" T("__metadata_", "U8", "[1]", 0, 1) "}", 1, "__metadata_ U8 [1] 0+1\n"),

    /* refused, but not numbered */
    BAD("refused_nothing_but_blanks", "   ", 0, NULL, "ends too early"),
    BAD("refused_byte_order_mark", "\xef\xbb\xbf{}", 0, "\xef", "not JSON"),
    BAD("refused_array", "[]", 0, "[", "an object that maps"),
    BAD("refused_string", "\"a\"", 0, "\"a", "an object that maps"),
    BAD("refused_null", "null", 0, "null", "an object that maps"),
    BAD("refused_two_values", "{}{}", 0, NULL, "the end expected"),
    BAD("refused_data_without_tensors", "{}", 1, NULL, "end at data byte 0, but the file has 1 bytes"),
    BAD("refused_trailing_comma", "{" T("a", "U8", "[1]", 0, 1) ",}", 1, NULL, "a key in quotes expected"),
    BAD("refused_entry_null", "{\"a\":null}", 0, "null", "must be an object with dtype"),
    BAD("refused_entry_as_array", "{\"a\":[\"U8\",[1],[0,1]]}", 1, "[\"U8", "must be an object with dtype"),
    BAD("refused_entry_empty", "{\"a\":{}}", 0, "}}", "dtype is missing"),
    BAD("refused_no_dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "}}", "dtype is missing"),
    BAD("refused_no_shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "}}", "shape is missing"),
    BAD("refused_no_offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "}}", "data_offsets is missing"),
    BAD("refused_shape_number", "{" T("a", "U8", "1", 0, 1) "}", 1, "1,\"data", "must be an array of whole numbers"),
    BAD("refused_shape_string", "{" T("a", "U8", "[\"1\"]", 0, 1) "}", 1, "\"1\"", "whole numbers only"),
    BAD("refused_shape_nested", "{" T("a", "U8", "[[1]]", 0, 1) "}", 1, "[1]", "whole numbers only"),
    BAD("refused_shape_fraction", "{" T("a", "U8", "[1.0]", 0, 1) "}", 1, "1.0", "1.0 is not a whole number"),
    BAD("refused_shape_negative", "{" T("a", "U8", "[-1,-1]", 0, 1) "}", 1, "-1,", "-1 is not a whole number"),
    BAD("refused_shape_minus_zero", "{" T("a", "U8", "[-0]", 0, 0) "}", 0, "-0", "-0 is not a whole number"),
    BAD("refused_shape_2_64", "{" T("a", "U8", "[18446744073709551616]", 0, 0) "}", 0, "1844", "larger than 2^64-1"),
    BAD("refused_shape_unclosed", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,\"data_offsets\":[0,1]}}", 1, "\"data",
        "whole numbers only"),
    BAD("refused_too_few_bytes", "{" T("a", "F32", "[2]", 0, 7) "}", 7, "[0,7]", "do not take the 7 bytes"),
    BAD("refused_too_many_bytes", "{" T("a", "F32", "[2]", 0, 9) "}", 9, "[0,9]", "do not take the 9 bytes"),
    BAD("refused_overlap", "{" T("a", "U8", "[3]", 0, 3) "," T("b", "U8", "[3]", 2, 5) "}", 5, "\"b\"",
        "begins at data byte 2, within the tensor before it, which ends at 3"),
    BAD("refused_hole_for_an_empty_tensor", "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[0]", 1, 1) "}", 2, "\"b\"",
        "within the tensor before it"),
    BAD("refused_unknown_member_not_json", "{\"a\":{\"x\":[1,],\"dtype\":\"U8\"}}", 1, "],\"dtype\"",
        "a value expected"),
};

#endif
