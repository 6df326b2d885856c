//! How tool calls are put together (quirks C.2).

use expect_test::expect;

use super::check;

/// Plain.
#[test]
fn parallel_calls_by_index() {
    check(
        r#"
        calls {"index":0,"id":"a","type":"function","function":{"name":"read_file","arguments":""}}
        calls {"index":0,"function":{"arguments":"{\"path\""}}
        calls {"index":0,"function":{"arguments":":\"x\"}"}}
        calls {"index":1,"id":"b","type":"function","function":{"name":"exec","arguments":""}}
        calls {"index":1,"function":{"arguments":"{}"}}
        finish tool_calls
        done
        "#,
        &expect![[r#"
            call 0 read_file
            args 0 {"path":"x"}
            call 1 exec
            args 1 {}
            complete
              0 "a" "read_file" {"path":"x"}
              1 "b" "exec" {}
        "#]],
    );
}

/// C.2 #1, resolver (c) and (d): no index.
#[test]
fn without_an_index_an_identifier_begins_a_call() {
    check(
        r#"
        calls {"id":"a","function":{"name":"f","arguments":"{\"x\":"}}
        calls {"function":{"arguments":"1}"}}
        calls {"id":"b","function":{"name":"f","arguments":"{\"x\":2}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            call 1 f
            args 1 {"x":2}
            complete
              0 "a" "f" {"x":1}
              1 "b" "f" {"x":2}
        "#]],
    );
}

/// C.2 #1: neither index nor identifier.
#[test]
fn without_index_and_identifier_a_name_begins_a_call() {
    check(
        r#"
        calls {"function":{"name":"f","arguments":"{\"x\":1}"}},{"function":{"name":"f","arguments":"{\"x\":2}"}}
        calls {"function":{"name":"g","arguments":"{\"x\":3}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            call 1 f
            args 1 {"x":2}
            call 2 g
            args 2 {"x":3}
            complete
              0 "" "f" {"x":1}
              1 "" "f" {"x":2}
              2 "" "g" {"x":3}
        "#]],
    );
}

/// C.2 #1: calls without arguments.
#[test]
fn without_index_and_identifier_another_name_begins_a_call() {
    check(
        r#"
        calls {"function":{"name":"f"}},{"function":{"name":"g"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            call 1 g
            complete
              0 "" "f" {}
              1 "" "g" {}
        "#]],
    );
}

/// C.2 #2, resolver (a): each call has index 0.
#[test]
fn another_identifier_at_the_same_index_is_another_call() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}
        calls {"index":0,"id":"b","function":{"name":"g","arguments":"{\"x\""}}
        calls {"index":0,"function":{"arguments":":2}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            call 1 g
            args 1 {"x":2}
            complete
              0 "a" "f" {"x":1}
              1 "b" "g" {"x":2}
        "#]],
    );
}

/// C.2 #2, resolver (a): the same without identifiers.
#[test]
fn a_name_after_whole_arguments_is_another_call() {
    check(
        r#"
        calls {"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}}
        calls {"index":0,"function":{"name":"g","arguments":"{\"x\":2}"}}
        calls {"index":0,"id":"c","function":{"name":"h","arguments":"{}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            call 1 g
            args 1 {"x":2}
            call 2 h
            args 2 {}
            complete
              0 "" "f" {"x":1}
              1 "" "g" {"x":2}
              2 "c" "h" {}
        "#]],
    );
}

/// Resolver (a): the name comes with each piece.
#[test]
fn a_name_that_is_repeated_begins_no_call() {
    check(
        r#"
        calls {"index":0,"function":{"name":"f","arguments":"{\"x\""}}
        calls {"index":0,"function":{"name":"f","arguments":":1}"}}
        calls {"index":0,"function":{"name":"f","arguments":""}}
        finish tool_calls
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "" "f" {"x":1}
        "#]],
    );
}

/// The same without an index.
#[test]
fn a_name_that_is_repeated_without_index_begins_no_call() {
    check(
        r#"
        calls {"function":{"name":"f","arguments":""}}
        calls {"function":{"name":"f","arguments":"{\"x\""}}
        calls {"function":{"name":"f","arguments":":1}"}}
        calls {"function":{"name":"f","arguments":""}}
        finish tool_calls
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "" "f" {"x":1}
        "#]],
    );
}

/// Resolver (b): back to a call that has been left.
#[test]
fn a_known_identifier_leads_back_to_its_call() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{"}}
        calls {"index":0,"id":"b","function":{"name":"g","arguments":"{"}}
        calls {"index":0,"id":"a","function":{"arguments":"}"}}
        calls {"index":0,"id":"b","function":{"arguments":"}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {
            call 1 g
            args 1 {
            args 0 }
            args 1 }
            complete
              0 "a" "f" {}
              1 "b" "g" {}
        "#]],
    );
}

/// C.2 #7: the same identifier for each call.
#[test]
fn one_identifier_for_all_calls_keeps_them_apart() {
    check(
        r#"
        calls {"index":0,"id":"call","function":{"name":"f","arguments":"{\"x\":1}"}}
        calls {"index":1,"id":"call","function":{"name":"g","arguments":"{\"x\""}}
        calls {"index":1,"id":"call","function":{"arguments":":2}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            call 1 g
            args 1 {"x":2}
            complete
              0 "call" "f" {"x":1}
              1 "call" "g" {"x":2}
        "#]],
    );
}

/// C.2 #3: named at index 1, arguments at index 0.
#[test]
fn arguments_under_another_index_go_to_the_call_that_waits() {
    check(
        r#"
        calls {"index":1,"id":"a","function":{"name":"f"}}
        calls {"index":0,"function":{"arguments":"{\"x\""}}
        calls {"index":0,"function":{"arguments":":1}"}}
        finish tool_calls
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "a" "f" {"x":1}
        "#]],
    );
}

/// C.2 #4: one index twice in one delta.
#[test]
fn one_index_may_stand_twice_in_a_delta() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f"}},{"index":0,"function":{"arguments":"{\"x\":"}}
        calls {"index":0,"function":{"arguments":"1"}},{"index":0,"function":{"arguments":"}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "a" "f" {"x":1}
        "#]],
    );
}

/// C.2 #5: empty instead of absent.
#[test]
fn empty_identifiers_and_names_count_as_absent() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":null}}
        calls {"index":0,"id":"","function":{"name":"","arguments":"{\"x\":1}"}}
        calls {"index":1,"id":"b","function":{"name":"g","arguments":"{"}}
        calls {"index":1,"id":"","function":{"name":null,"arguments":"}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            call 1 g
            args 1 {}
            complete
              0 "a" "f" {"x":1}
              1 "b" "g" {}
        "#]],
    );
}

/// C.2 #6: in pieces.
#[test]
fn name_identifier_and_arguments_come_in_any_order() {
    check(
        r#"
        calls {"index":0,"function":{"name":"f"}}
        calls {"index":0,"id":"a"}
        calls {"index":0,"function":{"arguments":"{}"}}
        calls {"index":1,"id":"b"}
        calls {"index":1,"function":{"arguments":"{\"x\":1"}}
        calls {"index":1,"function":{"name":"g","arguments":"}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {}
            args 1 {"x":1
            call 1 g
            args 1 }
            complete
              0 "a" "f" {}
              1 "b" "g" {"x":1}
        "#]],
    );
}

/// C.2 #6: the same without an index.
#[test]
fn an_identifier_may_come_after_its_name_without_an_index() {
    check(
        r#"
        calls {"function":{"name":"f"}}
        calls {"id":"a"}
        calls {"function":{"arguments":"{\"x\":1}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "a" "f" {"x":1}
        "#]],
    );
}

/// C.2 #7: the identifier is missing or tiny; the turn makes it unique.
#[test]
fn missing_and_tiny_identifiers_are_kept_as_they_are() {
    check(
        r#"
        calls {"index":0,"id":null,"function":{"name":"f","arguments":"{}"}}
        calls {"index":1,"id":null,"function":{"name":"f","arguments":"{}"}}
        calls {"index":2,"id":"0","function":{"name":"f","arguments":"{}"}}
        calls {"index":3,"id":1,"function":{"name":"f","arguments":"{}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {}
            call 1 f
            args 1 {}
            call 2 f
            args 2 {}
            call 3 f
            args 3 {}
            complete
              0 "" "f" {}
              1 "" "f" {}
              2 "0" "f" {}
              3 "1" "f" {}
        "#]],
    );
}

/// C.2 #8–10: identifiers with a meaning.
#[test]
fn identifiers_are_kept_verbatim() {
    check(
        r#"
        calls {"index":0,"id":"functions.read_file:3","function":{"name":"read_file","arguments":"{}"}}
        calls {"index":1,"id":"D681PevKs","function":{"name":"read_file","arguments":"{}"}}
        calls {"index":2,"id":"toolu_01+/=","function":{"name":"read_file","arguments":"{}"}}
        done
        "#,
        &expect![[r#"
            call 0 read_file
            args 0 {}
            call 1 read_file
            args 1 {}
            call 2 read_file
            args 2 {}
            complete
              0 "functions.read_file:3" "read_file" {}
              1 "D681PevKs" "read_file" {}
              2 "toolu_01+/=" "read_file" {}
        "#]],
    );
}

/// C.2 #11 and #12: not streamed.
#[test]
fn a_whole_call_in_one_chunk() {
    check(
        r#"
        data: {"choices":[{"delta":{"role":"assistant","content":null,"tool_calls":[{"id":"a","index":"0","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}

        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete 1+2
              0 "a" "f" {"x":1}
        "#]],
    );
}

/// C.2 #13.
#[test]
fn arguments_may_be_an_object_or_nothing() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":{"x":[1,2]}}}
        calls {"index":1,"id":"b","function":{"name":"f","arguments":null}}
        calls {"index":2,"id":"c","function":{"name":"f","arguments":""}}
        calls {"index":3,"id":"d","function":{"name":"f"}}
        calls {"index":4,"id":"e","function":{"name":"f","arguments":"null"}}
        calls {"index":5,"id":"f","function":{"name":"f","arguments":[1]}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":[1,2]}
            call 1 f
            call 2 f
            call 3 f
            call 4 f
            args 4 null
            call 5 f
            args 5 [1]
            complete
              0 "a" "f" {"x":[1,2]}
              1 "b" "f" {}
              2 "c" "f" {}
              3 "d" "f" {}
              4 "e" "f" {}
              5 "f" "f" unusable: The arguments must be a JSON object. Nothing was executed.
        "#]],
    );
}

/// C.2 #13: the word `null` as a piece.
#[test]
fn a_piece_that_reads_null_is_not_lost() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}
        calls {"index":0,"function":{"arguments":"null"}}
        calls {"index":0,"function":{"arguments":"}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":null}
            complete
              0 "a" "f" {"x":null}
        "#]],
    );
}

/// C.2 #14.
#[test]
fn a_call_without_a_name_is_passed_on() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"","arguments":"{\"x\":1}"}}
        done
        "#,
        &expect![[r#"
            args 0 {"x":1}
            complete
              0 "a" "" {"x":1}
        "#]],
    );
}

/// C.2 #15: white space goes; the rest of a name is the registry's.
#[test]
fn names_are_trimmed() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":" default_api:read \n","arguments":"{}"}}
        done
        "#,
        &expect![[r#"
            call 0 default_api:read
            args 0 {}
            complete
              0 "a" "default_api:read" {}
        "#]],
    );
}

/// C.2 #16: encoded twice; any other type is the tool's to judge.
#[test]
fn arguments_that_are_encoded_twice_are_understood() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"\"{\\\"x\\\":1}\""}}
        calls {"index":1,"id":"b","function":{"name":"f","arguments":"\"ls\""}}
        calls {"index":2,"id":"c","function":{"name":"f","arguments":"{\"x\":\"5\"}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 "{\"x\":1}"
            call 1 f
            args 1 "ls"
            call 2 f
            args 2 {"x":"5"}
            complete
              0 "a" "f" {"x":1}
              1 "b" "f" unusable: The arguments must be a JSON object, not a string. Nothing was executed.
              2 "c" "f" {"x":"5"}
        "#]],
    );
}

/// C.2 #17 (and C.1 #23).
#[test]
fn a_call_that_the_server_refuses_is_an_error_with_its_words() {
    check(
        r#"
        data: {"error":{"message":"tool call validation failed: /x: expected array, but got string","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=f>"}}
        "#,
        &expect![[r#"
            in-stream: host reported an error while answering: tool call validation failed: /x: expected array, but got string
        "#]],
    );
}

/// C.2 #18 and #19.
#[test]
fn words_and_calls_keep_their_order() {
    check(
        r#"
        delta {"content":"I will read "}
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{"}}
        delta {"content":"it"}
        calls {"index":0,"function":{"arguments":"}"}}
        delta {"content":" now.","tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]}
        finish tool_calls
        done
        "#,
        &expect![[r#"
            text "I will read "
            call 0 f
            args 0 {
            text "it"
            args 0 }
            text " now."
            call 1 g
            args 1 {}
            complete
              0 "a" "f" {}
              1 "b" "g" {}
        "#]],
    );
}

/// C.2 #20.
#[test]
fn the_old_function_call_is_one_call() {
    check(
        r#"
        delta {"function_call":{"name":"f","arguments":""}}
        delta {"function_call":{"arguments":"{\"x\""}}
        delta {"function_call":{"arguments":":1}"}}
        finish function_call
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "" "f" {"x":1}
        "#]],
    );
}

/// C.2 #20: in both ways at once.
#[test]
fn a_call_in_the_old_and_the_new_way_is_one_call() {
    check(
        r#"
        delta {"function_call":{"name":"f","arguments":"{}"},"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}
        delta {"function_call":null,"tool_calls":null}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {}
            complete
              0 "a" "f" {}
        "#]],
    );
}

/// C.2 #22.
#[test]
fn nothing_of_an_answer_that_was_cut_can_run() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}
        calls {"index":1,"id":"b","function":{"name":"g","arguments":"{\"x\":\"abc"}}
        finish length
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            call 1 g
            args 1 {"x":"abc
            length
              0 "a" "f" unusable: The answer was cut off at the output limit, the arguments of this call after 7 bytes. Nothing was executed. Send less at once: write the first part with write_file, then append.
              1 "b" "g" unusable: The answer was cut off at the output limit, the arguments of this call after 9 bytes. Nothing was executed. Send less at once: write the first part with write_file, then append.
        "#]],
    );
}

/// C.1 #27: `length` is hidden.
#[test]
fn half_a_call_does_not_run_whatever_the_end_says() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"rm -rf /ho"}}
        finish tool_calls
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":"rm -rf /ho
            complete
              0 "a" "f" unusable: The arguments are not valid JSON: they stop after 16 bytes (EOF while parsing a string at line 1 column 16). Nothing was executed. Send the whole call again.
        "#]],
    );
}

/// A name that grows.
#[test]
fn a_name_may_grow_and_is_not_put_together() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"read"}}
        calls {"index":0,"id":"a","function":{"name":"read_file"}}
        calls {"index":0,"id":"a","function":{"name":"other","arguments":"{}"}}
        done
        "#,
        &expect![[r#"
            call 0 read
            call 0 read_file
            args 0 {}
            complete
              0 "a" "read_file" {}
        "#]],
    );
}

/// Cumulative arguments.
#[test]
fn arguments_that_repeat_their_beginning_are_not_doubled() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1"}}
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}
            complete
              0 "a" "f" {"x":1}
        "#]],
    );
}

/// Control characters.
#[test]
fn raw_control_characters_are_repaired() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"a\n\tb\"}\n"}}
        calls {"index":1,"id":"b","function":{"name":"f","arguments":"{\"x\":\"a\\\nb\"}"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":"a
            	b"}

            call 1 f
            args 1 {"x":"a\
            b"}
            complete
              0 "a" "f" {"x":"a\n\tb"}
              1 "b" "f" unusable: The arguments are not valid JSON (invalid escape at line 2 column 0). Nothing was executed.
        "#]],
    );
}

/// Trailing garbage.
#[test]
fn only_what_means_nothing_may_follow_the_object() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}}"}}
        calls {"index":1,"id":"b","function":{"name":"f","arguments":"{\"x\":1}\n```"}}
        calls {"index":2,"id":"c","function":{"name":"f","arguments":"{\"x\":1}</tool_call>"}}
        calls {"index":3,"id":"d","function":{"name":"f","arguments":"{\"x\":1}{\"y\":2}"}}
        calls {"index":4,"id":"e","function":{"name":"f","arguments":"{\"x\":1},\"y\":2}"}}
        calls {"index":5,"id":"f","function":{"name":"f","arguments":"{\"x\":1} and more"}}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":1}}
            call 1 f
            args 1 {"x":1}
            ```
            call 2 f
            args 2 {"x":1}</tool_call>
            call 3 f
            args 3 {"x":1}{"y":2}
            call 4 f
            args 4 {"x":1},"y":2}
            call 5 f
            args 5 {"x":1} and more
            complete
              0 "a" "f" {"x":1}
              1 "b" "f" {"x":1}
              2 "c" "f" {"x":1}
              3 "d" "f" unusable: The arguments are not valid JSON (trailing characters at line 1 column 8). Nothing was executed.
              4 "e" "f" unusable: The arguments are not valid JSON (trailing characters at line 1 column 8). Nothing was executed.
              5 "f" "f" unusable: The arguments are not valid JSON (trailing characters at line 1 column 9). Nothing was executed.
        "#]],
    );
}

/// C.4 #24.
#[test]
fn half_a_surrogate_pair_is_replaced() {
    check(
        r#"
        calls {"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":\"\\ud83d!\\ud83d\\ude00\"}"}}
        calls {"index":1,"id":"b","function":{"name":"f","arguments":"{\"x\":\"\ud83d\"}"}}
        delta {"content":"a\ude00b\\ud83d"}
        done
        "#,
        &expect![[r#"
            call 0 f
            args 0 {"x":"\ud83d!\ud83d\ude00"}
            call 1 f
            args 1 {"x":"�"}
            text "a�b\\ud83d"
            complete
              0 "a" "f" {"x":"�!😀"}
              1 "b" "f" {"x":"�"}
        "#]],
    );
}

/// Nothing in them.
#[test]
fn empty_call_deltas_are_no_calls() {
    check(
        r#"
        calls {},null,{"index":0,"type":"function"},{"index":0,"function":{}}
        delta {"content":"x"}
        done
        "#,
        &expect![[r#"
            text "x"
            complete
        "#]],
    );
}
