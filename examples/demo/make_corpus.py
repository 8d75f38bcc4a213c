#!/usr/bin/env python3
"""Writes the text on which the demo's base model is trained: JSON Lines of prompt (the first line of a text) and
completion (the rest).

    python3 make_corpus.py --out corpus.jsonl --megabytes 40 --seed 1

The first line has new information, new names above all, which is unpredictable; the rest follows from it. With
the loss on the completion alone, half as many tokens teach as much (PyTorch prototype on an H200, 2026-11: exact match
after LoRA 0.97 for a base of 10.7 M tokens, against 0.01 with the loss on all of them and 0.96 for twice as many).

The texts teach the skills that the demo's task needs, each by itself: copying names that have not occurred before, clock
times, numbers and prices said in words, lists of fields in many formats, JSON of other documents. None shows the
task: no order is ever written as JSON, and no name of the held-out rows occurs.
"""
import argparse
import json
import random

from world import DAYS, FIRST_END, FIRST_START, LAST_END, LAST_START, ORDERS, THING, World, clock, number_words, price

# Facts of an order: the names of their fields in lists, and their values.
FIELDS = [
    (("name", "buyer", "client", "customer"), lambda r, s: r["who"]),
    (("surname", "last name"), lambda r, s: r["who"].split()[1]),
    (("first name", "given name"), lambda r, s: r["who"].split()[0]),
    (("goods", "article", "item"), lambda r, s: r["item"]),
    (("count", "number", "quantity"), lambda r, s: str(r["count"])),
    (("as ordered", "wanted"), lambda r, s: s["goods"]),
    (("day", "short day"), lambda r, s: r["day"][:3]),
    (("weekday", "day in full"), lambda r, s: r["day"]),
    (("time", "clock"), lambda r, s: clock(r["minutes"])),
    (("hour said", "time said"), lambda r, s: s["time"]),
    (("place", "address", "where"), lambda r, s: r["place"]),
    (("street",), lambda r, s: r["place"].split(" ", 1)[1]),
    (("house",), lambda r, s: r["place"].split(" ", 1)[0]),
    (("price", "total", "sum"), lambda r, s: price(r["cents"])),
    (("price said", "sum said"), lambda r, s: s["price"]),
]
QUESTIONS = [
    (("Who is it for?", "Who is the customer?", "For whom?"), lambda r, s: r["who"]),
    (("What is it?", "Which goods?", "What was ordered?"), lambda r, s: r["item"]),
    (("How many?", "How many are there?"), lambda r, s: str(r["count"])),
    (("Which day?", "On what day?"), lambda r, s: r["day"]),
    (("Which day, in short?",), lambda r, s: r["day"][:3]),
    (("At what time?", "When, by the clock?"), lambda r, s: clock(r["minutes"])),
    (("Where?", "To which address?", "Where to?"), lambda r, s: r["place"]),
    (("How much?", "What does it cost?", "What is the price?"), lambda r, s: price(r["cents"])),
]


def write_fields(rng, pairs):
    """Writes a list of (key, value) in one of the formats."""
    keys = [key for key, _ in pairs]
    values = [value for _, value in pairs]
    tags = [key.replace(" ", "_") for key in keys]
    form = rng.randrange(9)
    if form == 0:
        return "\n".join(f"{key}: {value}" for key, value in pairs)
    if form == 1:
        return "| " + " | ".join(keys) + " |\n| " + " | ".join(values) + " |"
    if form == 2:
        return "<entry>" + "".join(f"<{tag}>{value}</{tag}>" for tag, value in zip(tags, values)) + "</entry>"
    if form == 3:
        return "; ".join(f"{key} = {value}" for key, value in pairs) + ";"
    if form == 4:
        return ",".join(keys) + "\n" + ",".join(f'"{value}"' for value in values)
    if form == 5:
        return "(" + " ".join(f'({tag} "{value}")' for tag, value in zip(tags, values)) + ")"
    if form == 6:
        return "\n".join(f"{key} -> {value}" for key, value in pairs)
    if form == 7:
        return "\n".join(f"- {key}: '{value}'" for key, value in pairs)
    return "[" + "][".join(f"{key}|{value}" for key, value in pairs) + "]"


def pick_fields(rng, record, said, count):
    return [(rng.choice(names), get(record, said)) for names, get in rng.sample(FIELDS, count)]


def fields_view(world, record, said):
    """The names of the requested fields, then the fields."""
    pairs = pick_fields(world.rng, record, said, world.rng.randint(2, 8))
    asked = world.rng.choice(("Fields", "Wanted", "List")) + ": " + ", ".join(key for key, _ in pairs) + ".\n"
    return asked + write_fields(world.rng, pairs)


def questions_view(world, record, said):
    rng = world.rng
    ask, answer = rng.choice((("", " — "), ("Q: ", "\nA: "), ("", " "), ("? ", "\n! ")))
    return "\n".join(ask + rng.choice(wordings) + answer + get(record, said)
                     for wordings, get in rng.sample(QUESTIONS, rng.randint(2, 6)))


def when_view(world, record, said):
    """Day and hour, as said and as written."""
    day, written = record["day"], clock(record["minutes"])
    return "When: " + world.rng.choice((
        f"{day[:3]} {written}.", f"{day}, {written}.", f"{day}, {said['time']}: {day[:3]} {written}.",
        f"{written} ({day[:3]}).", f"{day} is {day[:3]}, {said['time']} is {written}."))


def again_view(world, record, said):
    """The same order in different words."""
    link = world.rng.choice(("In other words: ", "That is to say: ", "Again: ", "Once more: ", "To repeat: "))
    return link + world.order(record)[0]


def order_text(world):
    """An order, then what can be read out of it."""
    record = world.record()
    sentence, said = world.order(record)
    views = [world.rng.choice((fields_view, fields_view, questions_view, when_view, again_view))
             for _ in range(world.rng.randint(1, 3))]
    return "\n".join([sentence] + [view(world, record, said) for view in views])


def agenda_text(world):
    """Who comes when, said one after the other; then, in another order, written."""
    rng = world.rng
    rows = [(world.first(), rng.choice(DAYS), rng.randrange(7 * 60, 22 * 60, 5)) for _ in range(rng.randint(2, 5))]
    lines = [world.say(("{who} [comes|arrives|leaves|calls] [on|this|next] {day} at {time}.",
                        "[On|This|Next] {day} at {time} {who} [comes|arrives|leaves|calls].",
                        "{who}: {day}, {time}."), who=who, day=day, time=world.say_time(minutes))
             for who, day, minutes in rows]
    form = rng.randrange(4)
    rng.shuffle(rows)
    for who, day, minutes in rows:
        lines.append((f"{who} {day[:3]} {clock(minutes)}", f"{who}: {clock(minutes)}, {day}",
                      f'"{who}","{day[:3]}","{clock(minutes)}"', f"{day[:3]} {clock(minutes)} {who}")[form])
    return "\n".join(lines)


def copies_text(world):
    """Names listed, then repeated: in order, backwards, or by number."""
    rng = world.rng
    makers = (world.person, world.street, world.goods, world.first, world.last)
    make = rng.choice(makers)
    names = [make() for _ in range(rng.randint(3, 7))]
    start = rng.choice(("Names", "List", "Written", "Said")) + ": " + ", ".join(names) + "."
    form = rng.randrange(4)
    if form == 0:
        return start + "\nAgain: " + ", ".join(names) + "."
    if form == 1:
        return start + "\nBackwards: " + ", ".join(reversed(names)) + "."
    if form == 2:
        chosen = rng.sample(range(len(names)), min(4, len(names)))
        return start + "".join(f"\nNumber {i + 1}: {names[i]}" for i in chosen)
    return start + "".join(f'\n"{name}"' for name in names)


def follows_text(world):
    """Pairs, then one side asked by the other: who lives where, who keeps what."""
    rng = world.rng
    kind = rng.randrange(3)
    people = [world.person() if kind == 0 else world.first() for _ in range(rng.randint(2, 5))]
    if kind == 0:
        things = [f"{rng.randint(1, 199)} {world.street()}" for _ in people]
        lines = [f"{who} lives at {thing}." for who, thing in zip(people, things)]
    elif kind == 1:
        things = [f"{world.say_count(rng.randint(2, 40))} {world.goods()}" for _ in people]
        lines = [f"{who} has {thing}." for who, thing in zip(people, things)]
    else:
        things = [world.last() for _ in people]
        lines = [f"{who} is called {who} {thing}." for who, thing in zip(people, things)]
    ask = ("Where does {} live?", "What does {} have?", "What is the surname of {}?")[kind]
    order = rng.sample(range(len(people)), rng.randint(1, len(people)))
    return " ".join(lines) + "".join(f"\n{ask.format(people[i])} {things[i]}" for i in order)


def conversions_text(world):
    """Clock times, counts, days and prices as said and as written."""
    rng = world.rng
    lines = []
    link = rng.choice((" = ", ": ", " is ", " -> "))
    for _ in range(rng.randint(4, 9)):
        record = world.record()
        kind = rng.randrange(8)
        if kind < 3:
            if rng.random() < 0.3:  # the same hour once in each half of the day
                other = (record["minutes"] + 720) % 1440
                if 7 * 60 <= other < 22 * 60:
                    lines.append(link.join((world.say_time(other), clock(other))))
            pair = (world.say_time(record["minutes"]), clock(record["minutes"]))
        elif kind < 5:
            pair = (world.say_price(record["cents"]), price(record["cents"]))
        elif kind == 5:
            pair = (world.say_count(record["count"]), str(record["count"]))
        elif kind == 6:
            pair = (record["day"], record["day"][:3])
        else:
            value = rng.randint(0, 99)
            pair = (number_words(value), str(value))
        lines.append(link.join(pair))
    return "\n".join(lines)


def dialogue_text(world):
    """An order taken by word of mouth, then a line that sums it up."""
    rng = world.rng
    record = world.record()
    goods = f"{world.say_count(record['count'])} {record['item']}"
    host = world.first()
    who = record["who"].split()[0]
    turns = [
        (who, f"Good day, I am {record['who']} and I need {goods}."),
        (host, f"Certainly. {goods}. For which day?"),
        (who, f"{record['day']}, at {world.say_time(record['minutes'])}."),
        (host, f"{record['day']} at {clock(record['minutes'])}, {record['who']}. And where?"),
        (who, f"{record['place']}. What do I owe you?"),
        (host, f"That makes {world.say_price(record['cents'])}, so {price(record['cents'])}."),
    ]
    turns = turns[: rng.randint(3, 6)]
    text = "\n".join(f"{name}: {line}" for name, line in turns)
    if len(turns) == 6:
        text += f"\nIn short: {record['count']} {record['item']} for {record['who']}, {record['place']}."
    return text


def as_json(rng, value):
    if rng.random() < 0.7:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=False)


def person_json(world):
    """A person's card."""
    rng = world.rng
    name, age, pet = world.person(), rng.randint(18, 90), world.first()
    animal, street = rng.choice("cat dog goat hen pony goose".split()), world.street()
    values = {"person": name, "age": age, "street": street, animal: pet}
    keys = rng.sample(list(values), rng.randint(2, 4))
    sentence = (f"{name}, {number_words(age)} years old, lives in {street} and keeps a {animal} that is called "
                f"{pet}.")
    return sentence + "\n" + as_json(rng, {key: values[key] for key in keys})


def meeting_json(world):
    """A meeting of two."""
    rng = world.rng
    one, two, day, minutes = world.person(), world.person(), rng.choice(DAYS), rng.randrange(7 * 60, 22 * 60, 5)
    where = "the " + rng.choice("old new upper lower little".split()) + " " + rng.choice(
        "mill bridge market tower school harbour".split())
    sentence = world.say((
        "{one} meets {two} at {where} [on|this|next] {day} at {time}.",
        "[On|This|Next] {day} at {time} {one} and {two} [have a meeting|sit together] at {where}.",
        "{one} and {two}: {where}, {day}, {time}.",
    ), one=one, two=two, where=where, day=day, time=world.say_time(minutes))
    value = rng.choice((
        {"with": [one, two], "start": clock(minutes), "where": where},
        {"meeting": {"host": one, "guest": two}, "weekday": day},
        {"host": one, "guest": two, "weekday": day[:3], "start": clock(minutes)},
        {"start": {"weekday": day[:3], "hour": clock(minutes)}, "guests": [one, two]},
    ))
    return sentence + "\n" + as_json(rng, value)


def shelf_json(world):
    """What is in store, and what it costs."""
    rng = world.rng
    rows = [(world.goods(), rng.randint(2, 60), rng.randint(100, 9999)) for _ in range(rng.randint(1, 3))]
    sentence = "In store: " + ", ".join(
        f"{world.say_count(count)} {goods} at {world.say_price(cents // 5 * 5)}" for goods, count, cents in rows) + "."
    form = rng.randrange(3)
    if form == 0:
        value = [{"goods": goods, "stock": count} for goods, count, _ in rows]
    elif form == 1:
        value = {"store": [{"cost": float(price(cents // 5 * 5)), "goods": goods} for goods, _, cents in rows]}
    else:
        value = {goods: count for goods, count, _ in rows}
    return sentence + "\n" + as_json(rng, value)


def weather_json(world):
    rng = world.rng
    place, degrees, wind = world.street(), rng.randint(-9, 34), rng.choice("north east south west".split())
    day, minutes = rng.choice(DAYS), rng.randrange(0, 24 * 60, 5)
    sky = rng.choice("clear cloudy wet misty stormy".split())
    sentence = f"Weather in {place}, {day}, {clock(minutes)}: {sky}, {degrees} degrees, wind from the {wind}."
    value = {"day": day[:3], "sky": sky, "wind": wind, "degrees": degrees, "seen": [place, clock(minutes)]}
    keys = rng.sample(list(value), rng.randint(2, 5))
    return sentence + "\n" + as_json(rng, {key: value[key] for key in keys})


def story_text(world):
    """A story, in which names come back."""
    rng = world.rng
    hero, friend, street = world.person(), world.first(), world.street()
    thing, other = world.goods(), rng.choice(THING)
    parts = [
        f"{hero} walked down {street} with {world.say_count(rng.randint(2, 30))} {thing}.",
        f"At the corner {friend} was waiting.",
        rng.choice((f'"Where did you get the {thing}?" asked {friend}.', f'"Are those {thing}?" said {friend}.',
                    f"{friend} looked at the {thing}.")),
        rng.choice((f'"In {street}," said {hero}.', f'"They were a present," said {hero.split()[0]}.',
                    f"{hero} did not answer.")),
        f"So {friend} and {hero.split()[0]} went home, and the {other} stayed where they were.",
        f"Nobody in {street} saw the {thing} again.",
    ]
    return "\n".join(parts[: rng.randint(3, 6)])


def spelling_text(world):
    """New names made of known syllables, spelled and put together again."""
    rng = world.rng
    lines = []
    for _ in range(rng.randint(3, 6)):
        starts, ends = (FIRST_START, FIRST_END) if rng.random() < 0.5 else (LAST_START, LAST_END)
        name = world.draw(lambda: rng.choice(starts) + rng.choice(ends))
        lines.append(f"{name}: " + "-".join(name.upper()) + f", so {name}.")
    return "\n".join(lines)


MAKERS = [(order_text, 52), (agenda_text, 10), (copies_text, 8), (follows_text, 5), (conversions_text, 8),
          (dialogue_text, 3), (person_json, 2), (meeting_json, 5), (shelf_json, 3), (weather_json, 2), (story_text, 1),
          (spelling_text, 1)]


def texts(seed):
    """Texts without end."""
    world = World(random.Random(seed), odd=0.06)
    makers = [maker for maker, weight in MAKERS for _ in range(weight)]
    while True:
        yield world.rng.choice(makers)(world)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--megabytes", type=float, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    assert len(set(ORDERS)) == len(ORDERS)
    left = args.megabytes * 1e6
    rows = 0
    with open(args.out, "w", encoding="utf-8") as out:
        for text in texts(args.seed):
            first, rest = text.split("\n", 1)
            row = json.dumps({"prompt": first + "\n", "completion": rest}, ensure_ascii=False) + "\n"
            out.write(row)
            rows += 1
            left -= len(row.encode())
            if left <= 0:
                break
    print(f"{args.out}: {rows} texts")


if __name__ == "__main__":
    main()
