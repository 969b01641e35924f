"""The tables that a comparison prints."""
import statistics

from engines import OWN
from machine import AVX2
from results import Missing
from targets import wrong_peers

NAMES = {"prompt": "prompt {}", "decode": "decode, depth {}", "sequences": "{} sequences, in all"}
STARTS = [("start to the first token, s", "first_token_s", 1), ("anonymous memory, MB", "anonymous_bytes", 1e6), ("memory of files, MB", "file_bytes", 1e6)]


def title(test):
    kind, number = test.split(":")[:2]
    return NAMES[kind].format(number)


def cell(values):
    """Median with the least and the most of the rounds."""
    known = [v for v in values if v]
    if not known:
        return ""
    digits = 1 if statistics.median(known) >= 10 else 2
    return f"{statistics.median(known):.{digits}f} [{min(known):.{digits}f}-{max(known):.{digits}f}]"


def table(head, rows):
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]
    line = lambda row: "| " + " | ".join(str(x).ljust(w) for x, w in zip(row, widths)) + " |"
    return "\n".join([line(head), "|" + "|".join("---" for _ in head) + "|", *map(line, rows)])


def best(results, kind, model, test):
    """(ratio, peer), or None."""
    try:
        peer = results.best_peer(model, test, wrong_peers(kind, model, test))
        return results.ratio(model, test, peer), peer
    except Missing:
        return None


def print_model(results, kind, model, tests, engines):
    rows = []
    for test in tests:
        wrong = wrong_peers(kind, model, test)
        cells = [cell(results.speeds(model, e, test)) for e in engines]
        marked = [c + " *" if c and e in wrong else c for c, e in zip(cells, engines)]
        found = best(results, kind, model, test)
        rows.append([title(test), *marked, f"{found[0]:.2f} ({found[1]})" if found else ""])
    for text, field, unit in STARTS:
        rows.append([text, *(cell([run[field] / unit for run in results.of(model).get(e, []) if run.get(field)]) for e in engines), ""])
    print(f"\n## {model}: tokens/s, median [least-most]\n\n{table(['measure', *engines, f'{OWN} over the best'], rows)}")
    if any(wrong_peers(kind, model, test) for test in tests):
        print("\n\\* wrong answers, so not compared with")


def print_targets(kind, outcomes):
    """outcomes: (model, outcome)."""
    rows = [[model, o.text, f"{o.figure:.3g}" if o.figure is not None else "", o.bound, "met" if o.met else "MISSED", o.note] for model, o in outcomes]
    print(f"\n## Targets, {kind}{' only' if kind == AVX2 else ''}\n\n{table(['model', 'measure', 'figure', 'target', '', 'note'], rows)}")
