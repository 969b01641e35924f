"""Prompts of several kinds for comparisons with other engines: (name, text). Raw texts: control tokens are spelled out.

Each asks for something that goes on predictably, so that many tokens are compared before the first near tie.
"""


def turn(question):
    return f"<start_of_turn>user\n{question}<end_of_turn>\n<start_of_turn>model\n"


def records(n):
    """Lines of a list in which each number follows from the one before."""
    return "".join(f"Row {i}: box {i * 3} holds {i * 7} red and {i * 5} blue stones.\n" for i in range(1, n + 1))


def listing(n):
    """Functions that differ in a name and a number only."""
    return "".join(f"int scale_by_{i}(int value) {{\n  return value * {i};\n}}\n\n" for i in range(2, n + 2))


RAIN = (
    "The old mill stands where the river bends. Every morning Anna opens the gate, walks down the wet stones and looks at "
    "the wheel. On Monday she saw a heron on the wall. It waited for the fish that hide below the boards, and it did not "
    "move until the sun came over the hill. She wrote that down in her grey book, as her father had done before her. "
    "The book has a page for every day of the year; on each stands the height of the water, the wind, and one thing that "
    "was worth keeping. Some of the pages are older than the road to the village. "
)
RULES = "".join(
    f"Rule {i}: whoever comes to the {where} before noon shall bring {what} and leave it at the door. "
    for i, (where, what) in enumerate(
        [(w, t) for w in ("mill", "bridge", "tower", "garden", "harbour") for t in ("bread", "salt", "rope", "wood", "oil", "wool")], 1
    )
)

PROMPTS = [
    ("chat: one question", turn("What is the capital of Italy? Answer in one word.")),
    ("chat: repeat", turn("Repeat this sentence three times: The cat sat on the mat.") + "The cat sat on the mat.\n"),
    ("chat: second turn", turn("Count from 1 to 10.") + "1, 2, 3, 4, 5, 6, 7, 8, 9, 10<end_of_turn>\n" + turn("Now count from 11 to 30.") + "11, 12, 13,"),
    ("chat: list", turn("Name the days of the week, one per line.") + "Monday\nTuesday\n"),
    ("code: Python", "def fibonacci(n):\n    if n == 0:\n        return 0\n    if n == 1:\n        return 1\n    return fibonacci(n - 1) +"),
    ("code: C", "  for (int i = 0; i < 10; i++) {\n    a[i] = 0;\n  }\n  for (int i = 0; i < 20; i++) {\n    b[i] = 0;\n  }\n  for (int i ="),
    ("code: JSON", '{"users": [{"id": 1, "name": "user1"}, {"id": 2, "name": "user2"}, {"id": 3, "name": "user3"},'),
    ("code: SQL", "CREATE TABLE a (id INTEGER PRIMARY KEY);\nCREATE TABLE b (id INTEGER PRIMARY KEY);\nCREATE TABLE c (id INTEGER"),
    ("code: HTML", "<ul>\n  <li>One</li>\n  <li>Two</li>\n  <li>Three</li>\n  <li>"),
    ("German", "Eins, zwei, drei, vier, fünf, sechs,"),
    ("French", "Les mois de l'année sont janvier, février, mars,"),
    ("Spanish", "uno, dos, tres, cuatro, cinco, seis,"),
    ("Chinese", "一月、二月、三月、四月、五月、"),
    ("Japanese", "月曜日、火曜日、水曜日、"),
    ("Russian", "Понедельник, вторник, среда, четверг,"),
    ("English: alphabet", "A B C D E F G H I J K L M N"),
    ("English: numbers", "1 + 1 = 2\n2 + 2 = 4\n3 + 3 = 6\n4 + 4 ="),
    ("long: records", records(34)),
    ("long: prose", RAIN + RULES + "\n\nOnce more, from the beginning:\n\nThe old mill stands where the river"),
    ("long: code", listing(40)),
]
