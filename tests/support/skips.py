# SPDX-License-Identifier: Apache-2.0
"""Passes ctest's output on; before its closing lines, lists the tests that were skipped, wholly or in part, and why.

    ctest ... --output-junit FILE | skips.py FILE

A test says why in lines "skipped: ...".
"""
import pathlib
import re
import sys
import xml.etree.ElementTree


def skipped_tests(report):
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        if case.get("status") not in ("notrun", "disabled"):
            continue
        output = case.findtext("system-out") or ""
        reasons = re.findall(r"^\s*skipped: (.+)$", output, re.MULTILINE)
        if not reasons:
            lines = [line.strip() for line in output.splitlines() if line.strip()]
            # Not even started: its program was not built, or its fixture failed.
            reasons = lines[-1:] or [case.find("skipped").get("message") if case.find("skipped") is not None else "?"]
        yield case.get("name"), list(dict.fromkeys(reasons))


def main():
    report = pathlib.Path(sys.argv[1])
    closing = []
    for line in sys.stdin:
        if closing or re.match(r"\d+% tests passed", line):
            closing.append(line)
        else:
            print(line, end="", flush=True)
    skipped = list(skipped_tests(report)) if report.exists() else []
    if skipped:
        print(f"{len(skipped)} tests were skipped, or parts of them:")
        for name, reasons in skipped:
            for reason in reasons:
                print(f"  {name}: {reason}")
        print()
    print("".join(closing), end="", flush=True)


main()
