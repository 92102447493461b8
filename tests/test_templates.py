"""Alert templates expand to the very text that Prometheus gives."""

from __future__ import annotations

import math
import random
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support import peers
from vllm_watchdog.watchdog.templates import (
    CallError,
    Context,
    TemplateError,
    parse_template,
)
from vllm_watchdog.watchdog.templates.goformat import sprint, sprintln
from vllm_watchdog.watchdog.templates.printf import sprintf

LABELS = {"instance": "node-1.example.com:9100", "job": "vllm", "dev": "héllo wörld"}
QUEUE = [({"__name__": "queue", "x": "a"}, 3.0)]


def rows(text: str) -> list[tuple[dict[str, str], float]]:
    """The queries that the templates of these tests ask, answered."""
    if text == "queue":
        return QUEUE
    if text == "none":
        return []
    raise CallError("1:1: parse error: oops")


def expand(text: str, value: float = 1.0) -> str:
    template, _ = parse_template(text, "T")
    context = Context(rows, {"cluster": "c1"}, "http://prom.example/base")
    return template.expand(LABELS, value, context)


# (template, value of the alert, expected text); every row is confirmed by the real promtool.
TABLE = [
    ("plain text", 1, "plain text"),
    ("{{ $labels.job }} {{ .Labels.job }}", 1, "vllm vllm"),
    ("[{{ $labels.missing }}]", 1, "[]"),
    ("{{ $value }} {{ .Value }}", 1234567.891, "1.234567891e+06 1.234567891e+06"),
    ("{{ $value }}", 0.00001, "1e-05"),
    ("{{ $value }}", 123456, "123456"),
    ("{{ $value | humanize }}", 1234567.891, "1.235M"),
    ("{{ $value | humanize }}", 0.000123, "123u"),
    ("{{ humanize1024 $value }}", 1234567.891, "1.177Mi"),
    ("{{ $value | humanizeDuration }}", 1234567.891, "14d 6h 56m 7s"),
    ("{{ $value | humanizeDuration }}", 0.0005, "500us"),
    ("{{ $value | humanizeDuration }}", -61, "-1m 1s"),
    ("{{ $value | humanizePercentage }}", 0.12345, "12.35%"),
    ("{{ $value | humanizeTimestamp }}", 1700000000.5, "2023-11-14 22:13:20.5 +0000 UTC"),
    ('{{ printf "%.2f|%5.1f|%-6s|%d%%" $value 2.25 "ab" 7 }}', 3.14159, "3.14|  2.2|ab    |7%"),
    ('{{ printf "%d" $value }}', 1, "%!d(float64=1)"),
    ('{{ printf "%s %d" "x" }}{{ printf "x" 1 }}', 1, "x %!d(MISSING)x%!(EXTRA int=1)"),
    ('{{ printf "%q %x %t %v %e" "hi" 255 true 1.5 12345.678 }}', 1, '"hi" ff true 1.5 1.234568e+04'),
    ("{{ $value | printf \"%.1f\" | printf \"<%s>\" }}", 2.55, "<2.5>"),
    ("{{ if gt $value 5.0 }}big{{ else if gt $value 0.5 }}mid{{ else }}small{{ end }}", 1, "mid"),
    ("{{ if $labels.missing }}a{{ else }}b{{ end }}", 1, "b"),
    ("{{ with $labels.job }}[{{ . }}]{{ else }}none{{ end }}", 1, "[vllm]"),
    ('{{ range query "queue" }}{{ .Labels.x }}={{ .Value }};{{ end }}', 1, "a=3;"),
    ('{{ range $i, $e := query "queue" }}{{ $i }}:{{ $e.Labels.x }}{{ end }}', 1, "0:a"),
    ('{{ range query "none" }}x{{ else }}empty{{ end }}', 1, "empty"),
    ('{{ query "queue" | first | value | humanize }}', 1, "3"),
    ('{{ query "queue" | first | label "x" | toUpper }}', 1, "A"),
    ('{{ with query "queue" }}{{ (. | first).Labels.x }}{{ end }}', 1, "a"),
    ("{{ $x := 5 }}{{ $x }}{{ $x = 6 }}{{ $x }}", 1, "56"),
    ("a {{- /* comment */ -}} b", 1, "ab"),
    ("x {{ \"a\" -}}\n  y", 1, "x ay"),
    ("{{ `raw \\n` }}{{ \"tab\\tü\" }}", 1, "raw \\ntab\tü"),
    ("{{ 0x1F }} {{ 1e3 }} {{ 'a' }} {{ -3 }}", 1, "31 1000 97 -3"),
    ("{{ and 1 0 }} {{ or 0 \"x\" }} {{ not true }} {{ eq 1 1 }} {{ ne 1 2 }}", 1, "0 x false true true"),
    ("{{ lt 1 2 }} {{ le 2 2 }} {{ ge 3 4 }} {{ eq \"a\" \"b\" \"a\" }}", 1, "true true false true"),
    ("{{ len $labels.job }} {{ len \"héé\" }} {{ index $labels \"job\" }}", 1, "4 5 vllm"),
    ("{{ print \"a\" 1 2 \"b\" 3.5 true }}", 1, "a1 2b3.5 true"),
    ("{{ $labels.dev | title }} {{ toUpper $labels.dev }}", 1, "Héllo Wörld HÉLLO WÖRLD"),
    ("{{ title \"it's node-1.example a_b 1abc\" }}", 1, "It's Node-1.Example A_b 1Abc"),
    ('{{ match "^v.*" $labels.job }} {{ match "x" "abc" }}', 1, "true false"),
    ('{{ reReplaceAll "(.*):.*" "$1" $labels.instance }}', 1, "node-1.example.com"),
    ('{{ reReplaceAll "b*" "-" "abc" }} {{ reReplaceAll "a(x*)b" "${1}W" "-axxb-" }}', 1, "-a-c- -xxW-"),
    ("{{ stripPort $labels.instance }} {{ stripDomain $labels.instance }}", 1, "node-1.example.com node-1:9100"),
    ('{{ parseDuration "1h30m" }} {{ "90" | humanizeDuration }}', 1, "5400 1m 30s"),
    ('{{ graphLink "up == 0" }} {{ tableLink "é" }}', 1, "/graph?g0.expr=up+%3D%3D+0&g0.tab=0 /graph?g0.expr=%C3%A9&g0.tab=1"),
    ("{{ html \"<a href='x'>&\" }} {{ urlquery \"a b&c\" }}", 1, "&lt;a href=&#39;x&#39;&gt;&amp; a+b%26c"),
    ("{{ $externalLabels.cluster }} {{ .ExternalURL }}", 1, "c1 http://prom.example/base"),
    ("{{ range $k, $v := $labels }}{{ $k }};{{ end }}", 1, "dev;instance;job;"),
    ('{{ range $e := query "queue" }}{{ break }}{{ end }}{{ range 3 }}{{ . }}{{ end }}', 1, "012"),
    ("{{ (toTime $value).Year }} {{ toTime $value }}", 1700000000, "2023 2023-11-14 22:13:20 +0000 UTC"),
    ('{{ (args 1 "b").arg1 }}{{ (args 1).arg9 }}', 1, "b<no value>"),
    ("{{ slice \"abcdef\" 1 3 }}", 1, "bc"),
    (
        "{{ humanize \"abc\" }}",
        1,
        '<error expanding template: error executing template __alert_T: template: __alert_T:1:115: executing "__alert_T" at <humanize "abc">: error calling humanize: strconv.ParseFloat: parsing "abc": invalid syntax>',
    ),
    (
        'é\n{{ query "none" | first }}',
        1,
        '<error expanding template: error executing template __alert_T: template: __alert_T:2:18: executing "__alert_T" at <first>: error calling first: first() called on vector with no elements>',
    ),
    (
        "{{ if gt $value 5 }}big{{ end }}",
        1,
        '<error expanding template: error executing template __alert_T: template: __alert_T:1:118: executing "__alert_T" at <gt $value 5>: error calling gt: incompatible types for comparison: float64 and int>',
    ),
    (
        "{{ .Foo }}",
        1,
        '<error expanding template: error executing template __alert_T: template: __alert_T:1:115: executing "__alert_T" at <.Foo>: can\'t evaluate field Foo in type struct { Labels map[string]string; ExternalLabels map[string]string; ExternalURL string; Value interface {} }>',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value", "expected"), TABLE, ids=[row[0][:40] for row in TABLE])
def test_template_expands_as_in_prometheus(text: str, value: float, expected: str) -> None:
    got = expand(text, float(value))

    assert expected == got


@pytest.mark.peer
def test_promtool_agrees_with_every_expected_text(tmp_path: Path) -> None:
    promtool = peers.require("promtool")
    rules = [
        {"alert": "T", "expr": f"m * 0 + {value}", "labels": {"row": str(i)}, "annotations": {"a": text}}
        for i, (text, value, _) in enumerate(TABLE)
    ]  # fmt: skip
    expected = [
        {"exp_labels": {**LABELS, "row": str(i)}, "exp_annotations": {"a": text}}
        for i, (_, _, text) in enumerate(TABLE)
    ]
    labels = ",".join(f'{name}="{value}"' for name, value in LABELS.items())
    test = {
        "rule_files": ["rules.yaml"],
        "tests": [
            {
                "interval": "1m",
                "external_labels": {"cluster": "c1"},
                "external_url": "http://prom.example/base",
                "input_series": [
                    {"series": f"m{{{labels}}}", "values": "1"},
                    {"series": 'queue{x="a"}', "values": "3"},
                ],
                "alert_rule_test": [{"eval_time": "0m", "alertname": "T", "exp_alerts": expected}],
            }
        ],
    }
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "g", "rules": rules}]}, allow_unicode=True)
    )
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test, allow_unicode=True))

    done = subprocess.run(
        [str(promtool), "test", "rules", str(tmp_path / "test.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


REFUSED = [
    ("{{ foo }}", 'function "foo" not defined', 3),
    ("x {{ $labels.a | nope }}", 'function "nope" not defined', 17),
    ("{{ $u }}", 'undefined variable "$u"', 3),
    ('{{ tmpl "x" . }}', 'function "tmpl" not defined', 3),
    ('{{ define "x" }}a{{ end }}', "action 'define' is not supported in annotations", 3),
    ('{{ template "x" }}', "action 'template' is not supported in annotations", 3),
    ("{{", "unclosed action", 2),
    ("{{ }}", "missing value for command", 3),
    ('{{ "a }}', "unterminated quoted string", 3),
    ("{{ if }}x{{ end }}", "missing value for if", 6),
    ("{{ if 1 }}x", "unexpected EOF", 11),
    ("{{ end }}", "unexpected {{end}}", 3),
    ("{{ 1 | 2 }}", "non executable command in pipeline stage 2", 7),
    ("{{ (1 }}", "unclosed left paren", 6),
    ("{{ 1) }}", "unexpected right paren", 4),
    ("{{/* x }}", "unclosed comment", 2),
    ("{{ break }}", "{{break}} outside {{range}}", 3),
    ("{{ 'ab' }}", "malformed character constant: 'ab'", 3),
    ('{{ (toTime $value).AddDate 1 }}', "method AddDate of *time.Time is not supported", 18),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "offset"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_outside_the_subset_is_refused_with_its_place(
    text: str, message: str, offset: int
) -> None:
    with pytest.raises(TemplateError) as refused:
        parse_template(text, "T")

    assert offset == refused.value.offset
    assert refused.value.message.startswith(message)


def test_deep_nesting_is_refused_instead_of_exhausting_the_stack() -> None:
    text = "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"

    with pytest.raises(TemplateError, match="max expression depth exceeded"):
        parse_template(text, "T")


def test_text_without_an_action_is_constant() -> None:
    template, _ = parse_template("no braces {", "T")

    assert template.constant


def test_query_in_a_template_is_told_to_the_loader() -> None:
    template, _ = parse_template('{{ query "up" | first | value }}{{ query $labels.q }}', "T")

    assert (template.queries, template.asks) == (("up",), True)


def test_failing_query_becomes_the_text_of_the_annotation() -> None:
    got = expand('{{ query "bad(" }}')

    assert 'at <query "bad(">: error calling query: 1:1: parse error: oops>' in got


def test_broken_pattern_is_remarked_at_its_place() -> None:
    _, remarks = parse_template('{{ match "(" "x" }}', "T")

    assert [remark.offset for remark in remarks] == [9]


def test_field_that_no_alert_has_is_remarked() -> None:
    _, remarks = parse_template("{{ .Foo }}{{ with 1 }}{{ .Bar }}{{ end }}", "T")

    assert [remark.offset for remark in remarks] == [3]


def test_no_text_makes_the_parser_or_an_expansion_crash() -> None:
    pick = random.Random(7)
    words = sorted(
        {word for text, *_ in TABLE for word in re.findall(r'"[^"]*"|[$]?\w+|\s+|\S', text)}
    )
    outcomes = {"refused": 0, "expanded": 0}

    for _ in range(3000):
        text, at = pick.choice(TABLE)[0], pick.randrange(40)
        text = (
            text[:at]
            + "".join(pick.choices(words, k=pick.randrange(4)))
            + text[at + pick.randrange(4) :]
        )
        try:
            template, _ = parse_template(text, "T")
        except TemplateError as error:
            assert 0 <= error.offset <= len(text)
            outcomes["refused"] += 1
            continue
        template.expand(LABELS, pick.choice([1.0, math.nan, -math.inf]), Context(rows))
        outcomes["expanded"] += 1

    assert min(outcomes.values()) > 100


def test_endless_work_is_stopped() -> None:
    got = expand("{{ range 1000000 }}{{ range 1000000 }}{{ end }}{{ end }}")

    assert "too many steps" in got


def test_output_has_a_limit() -> None:
    got = expand('{{ range 10 }}{{ range 10 }}{{ printf "%999999d" 1 }}{{ end }}{{ end }}')

    assert "output too long" in got


# (format, operands, expected), worked out with Go's fmt
FORMATS = [
    ("%v %v %v", (1e6, 1e5, 1e21), "1e+06 100000 1e+21"),
    ("%v %v %v", (math.inf, -math.inf, math.nan), "+Inf -Inf NaN"),
    ("%+v %08.3f % d %+d", (5.0, 3.14159, 5, 5), "5 0003.142  5 +5"),
    ("%x %X %#x %o %b %O", (255, 255, 255, 8, 5, 8), "ff FF 0xff 10 101 0o10"),
    ("%c %q %U", (65, 65, 65), "A 'A' U+0041"),
    ("%x %X", (5.5, 1.0), "0x1.6p+02 0X1P+00"),
    ("%[2]d %[1]d", (1, 2), "2 1"),
    ("%*d|%-*d|%.*f", (5, 3, 4, 7, 2, 3.14159), "    3|7   |3.14"),
    ("%T %T %T", (1.0, "a", None), "float64 string <nil>"),
    ("%s %d", (None, "a"), "%!s(<nil>) %!d(string=a)"),
    ("%.2s|%5s|%-5s|", ("héllo", "é", "é"), "hé|    é|é    |"),
    ("%!", (), "%!!(MISSING)"),
    ("%", (), "%!(NOVERB)"),
    ("%z", (3,), "%!z(int=3)"),
    ("%x", ("hé",), "68c3a9"),
]


@pytest.mark.parametrize(("text", "operands", "expected"), FORMATS)
def test_printf_writes_as_go_does(text: str, operands: tuple[object, ...], expected: str) -> None:
    assert expected == sprintf(text, *operands)


def test_print_puts_spaces_between_operands_that_are_no_strings() -> None:
    assert sprint("a", 1, 2, "b", 3.5, True) == "a1 2b3.5 true"
    assert sprintln(1, "x", 2) == "1 x 2\n"
