#!/usr/bin/env python3
"""Rewrites the chat template oracle into the form the tests read (test/data/templates/cases.json).

usage: template_cases.py ORACLE_CASES.json > cases.json

The context becomes one JSON text, so that the test hands it on without a parser of its own that could change numbers.
"""
import calendar
import json
import sys
import time

NOT_FOR_THE_TEMPLATE = ("continue_final_message", "return_assistant_tokens_mask")

oracle = json.load(open(sys.argv[1], encoding="utf-8"))
cases = []
for case in oracle["cases"]:
    kwargs = case["kwargs"]
    context = {"messages": case["messages"], "tools": case["tools"]}
    context.update((k, v) for k, v in kwargs.items() if k not in NOT_FOR_THE_TEMPLATE)
    row = {
        "name": case["name"],
        "template": case["template"].removeprefix("templates/"),
        "bos_token": case["bos_token"],
        "eos_token": case["eos_token"],
        "now": calendar.timegm(time.strptime(case["now"], "%Y-%m-%dT%H:%M:%S")),
        "continue_final_message": bool(kwargs.get("continue_final_message")),
        "track_generation": bool(kwargs.get("return_assistant_tokens_mask")),
        "context": json.dumps(context, ensure_ascii=False),
    }
    for key in ("expected", "generation_char_ranges"):
        if key in case:
            row[key] = case[key]
    if "error" in case:
        row["error"] = case["error"]["message"]
    cases.append(row)
json.dump({"reference": oracle["reference"], "cases": cases}, sys.stdout, ensure_ascii=False, indent=1)
print()
