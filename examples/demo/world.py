"""The small world that the demo's texts are about: people, goods, streets, hours and prices, and how they are said.

Names are put together from syllables, so there are far more of them than any text here holds. One name in six is
kept back: `kept_back` says which, from the name alone. Corpus and training rows never use such a name; held-out rows
use only such names. So whoever gets a held-out row right has read it, and not remembered it.
"""
import zlib

FIRST_START = """Ma Tol Bre An Il Jor Ka Lu Mi Ne Os Pe Ro Sa Ti Ul Va Wil Ye Zo Al Ber Ce Da El Fa Gre Hal In Ju Ki Le
Mo Na Or Pa Qui Ri So Ta Un Ve We Xa Ar Be Cor De Em Fio Gu Hes Is Jas Ko Lin Mel Nor Ol Phi Ras Sel Tor Vin""".split()
FIRST_END = """ra na lin dor bert mund rik la vin den mar nel sa thea ron bel dra fina gar hild ia jo kas len mira nor
ola pold rus sten ta una vard wen xis yn za lia mon rit""".split()
LAST_START = """Tol Alder Bram Cas Dun Elm Farn Gar Hol Ingel Jar Kest Lang Mar Nether Oak Pel Quill Rav Sand Thorn Ul Vand
Wes Yar Zell Ash Birk Crow Dal Ever Fen Gold Hart Iver Jun Kirk Lock Mill North Orm Pen Rook Stan Tarn Under Vel Wick
Brack Carl Dor Ell Frost Glen Hazel Kel Lim Mor Nor Pol Rush Sal Tres Wal Arn Bel Cald Drum Fal Gris""".split()
LAST_END = """win ton ley den man by wick ford stone well er son mann ham croft field gate land holm more ness rick sby
strom thwaite vale worth yard beck dale feld gren hurst kin lund mark nick over pool quist ridge shaw""".split()
STREET_START = """Elm Bridge Castle Mill Old Kiln Lark Amber Bell Cooper Dusk Ember Fern Garnet Heron Iron Juniper King
Linden Maple Nettle Ochre Pepper Quarry River Silver Thistle Umber Vine Willow Abbey Birch Cinder Drover Eagle Fuller
Gander Harbour Ivy Jasmine Kestrel Lantern Meadow Needle Otter Pilgrim Raven Saddle Tanner Usher Velvet Weaver""".split()
STREET_END = """brook gate hill stead side well mere croft field bank wood moor cross view down end bridge combe fall
grove holt lea path rise stone water""".split()
STREET_KIND = "Lane Street Road Way Row Square Yard Close Alley Walk".split()
LOOK = """rye smoked oak brass woollen copper linen cherry barley clay silver wax cotton walnut pewter velvet maple tin
dried pickled roasted salted honey ginger apple plum almond poppy painted carved braided knitted blue red green white
black striped spotted folding tall narrow""".split()
THING = """loaves trout shelves lamps blankets kettles napkins tarts cakes jugs spoons candles shirts chairs mugs
cushions bowls buckets figs onions nuts herrings rolls biscuits pies pears bars wreaths boxes stools baskets scarves
plates ribbons doors pots hats gloves socks stamps tables benches ladders mirrors brushes ropes cards kites drums
bells""".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen""".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()


def kept_back(name):
    """Whether a name belongs to the held-out rows alone."""
    return zlib.crc32(name.encode()) % 6 == 0


def number_words(value):
    """0 .. 99 in words."""
    if value < 20:
        return ONES[value]
    return TENS[value // 10] + ("-" + ONES[value % 10] if value % 10 else "")


class World:
    """Draws facts and the ways to say them from one random source; `held_out` picks the side of the names. `odd` is the
    share of names that are no such composition but letters at random: they make a reader of every token."""

    def __init__(self, rng, held_out=False, odd=0.0):
        self.rng = rng
        self.held_out = held_out
        self.odd = odd

    def odd_name(self):
        letters = [self.rng.choice("bcdfghjklmnpqrstvwxzbdlmnrst" if i % 2 == 0 else "aeiouyaeioea")
                   + (self.rng.choice("lnrstb") if self.rng.random() < 0.3 else "")
                   for i in range(self.rng.randint(3, 7))]
        return "".join(letters).capitalize()

    def draw(self, make):
        """A name of this world's side."""
        while True:
            name = self.odd_name() if self.rng.random() < self.odd else make()
            if kept_back(name) == self.held_out:
                return name

    def first(self):
        pick = self.rng.choice
        return self.draw(lambda: pick(FIRST_START) + pick(FIRST_END))

    def last(self):
        pick = self.rng.choice
        return self.draw(lambda: pick(LAST_START) + pick(LAST_END))

    def person(self):
        return self.first() + " " + self.last()

    def street(self):
        pick = self.rng.choice
        return self.draw(lambda: pick(STREET_START) + pick(STREET_END)) + " " + pick(STREET_KIND)

    def goods(self):
        pick = self.rng.choice
        while True:
            goods = pick(LOOK) + " " + pick(THING)
            if kept_back(goods) == self.held_out:
                return goods

    def record(self):
        """The facts of one order."""
        rng = self.rng
        return {
            "who": self.person(),
            "item": self.goods(),
            "count": rng.choice((2, 6, 12, 24, 36)) if rng.random() < 0.3 else rng.randint(2, 60),
            "day": rng.choice(DAYS),
            "minutes": rng.randrange(7 * 60, 21 * 60 + 60, 5),
            "place": f"{rng.randint(1, 199)} {self.street()}",
            "cents": rng.randint(3, 99) * 100 + (rng.randrange(0, 100, 5) if rng.random() < 0.7 else 0),
        }

    def say_count(self, count):
        """A number of things, to be followed by their name."""
        ways = [str(count), number_words(count), number_words(count)]
        if count == 2:
            ways += ["a pair of"] * 2
        if count == 6:
            ways += ["half a dozen"] * 3
        if count == 12:
            ways += ["a dozen"] * 3
        if count in (24, 36):
            ways += [number_words(count // 12) + " dozen"] * 3
        return self.rng.choice(ways)

    def say_time(self, minutes):
        """An hour of the day, to follow `at`."""
        hour, minute = divmod(minutes, 60)
        if minutes == 12 * 60 and self.rng.random() < 0.5:
            return "noon"
        part = "in the morning" if hour < 12 else "in the afternoon" if hour < 18 else "in the evening"
        named = number_words((hour - 1) % 12 + 1)
        following = number_words(hour % 12 + 1)
        if minute == 0:
            said = self.rng.choice((named, named + " o'clock"))
        elif minute == 30:
            said = self.rng.choice(("half past " + named, named + " thirty"))
        elif minute == 15:
            said = "quarter past " + named
        elif minute == 45:
            said = "quarter to " + following
        elif minute < 30:
            said = f"{number_words(minute)} past {named}"
        else:
            said = f"{number_words(60 - minute)} to {following}"
        spoken = f"{said} {part}"
        half = "am" if hour < 12 else "pm"
        return self.rng.choice((spoken, spoken, spoken, clock(minutes), f"{(hour - 1) % 12 + 1}:{minute:02d} {half}"))

    def say_price(self, cents):
        """An amount of money, to follow `for`."""
        euros, rest = divmod(cents, 100)
        ways = [price(cents), "€" + price(cents)]
        if rest:
            ways += [f"{euros} euros {rest}" if rest >= 10 else f"{euros} euros and {rest} cents",
                     f"{number_words(euros)} euros {'and ' if rest < 10 else ''}{number_words(rest)}"
                     + (" cents" if rest < 10 else "")]
        else:
            ways += [f"{euros} euros", f"{number_words(euros)} euros"]
        return self.rng.choice(ways)

    def expand(self, text):
        """Replaces every [a|b|c] by one of its choices."""
        while "[" in text:
            before, rest = text.split("[", 1)
            choices, after = rest.split("]", 1)
            text = before + self.rng.choice(choices.split("|")) + after
        return text

    def say(self, patterns, **said):
        """One of the patterns with its choices made, then its {names} filled."""
        return self.expand(self.rng.choice(patterns)).format(**said)

    def order(self, record):
        """A sentence that tells the whole record, and how its parts were said."""
        said = {
            "who": record["who"],
            "goods": f"{self.say_count(record['count'])} {record['item']}",
            "day": record["day"],
            "time": self.say_time(record["minutes"]),
            "place": record["place"],
            "price": self.say_price(record["cents"]),
        }
        return self.say(ORDERS, **said), said


def clock(minutes):
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def price(cents):
    return f"{cents // 100}.{cents % 100:02d}"


ORDERS = [
    "{who} [would like|wants|asks for|has asked for] {goods} [brought|delivered|sent|carried] to {place} "
    "[on|this|next] {day} at {time}, [for|at a price of] {price}[| in all| altogether].",
    "[Please|Kindly] [send|bring|deliver|carry] {goods} to {who} at {place} [on|this|next] {day} at {time}; "
    "[the price is|it comes to|that makes] {price}.",
    "[On|This|Next] {day} at {time} {who} [expects|awaits|is waiting for] {goods} at {place}, "
    "[for|priced at] {price}.",
    "{goods} for {who}, [please|if you can]: {place}, {day} at {time}, [we said|agreed at|for] {price}.",
    "We [promised|owe|sold] {who} {goods} for {price}, to be [brought|taken|driven] to {place} "
    "[on|this|next] {day} at {time}.",
    "[Order|Note|Message] from {who}: {goods}, [to arrive|to be there|due] [on|this|next] {day} at {time}, "
    "{place}, [to be paid|paying|price] {price}.",
    "{who} [will pay|pays|has paid|offers] {price} for {goods}, [delivered to|left at|handed over at] {place} "
    "[on|this|next] {day} at {time}.",
    "[The courier|The driver|Our cart] [goes|must go|should go] to {place} [on|this|next] {day} at {time} with {goods} "
    "for {who}, who [pays|owes] {price}.",
    "[Could you|Can you|Would you] [take|bring|send] {goods} [over |]to {place} [on|this|next] {day} at {time}? "
    "[They are|It is all] for {who}, who [will pay|pays] {price}.",
    "At {place}, {who} [needs|is in need of|hopes for] {goods} by {time} [on|this|next] {day} and "
    "[agreed to|will pay|accepts] {price}.",
    "[Hello|Good morning|Good day], [this is|my name is|I am] {who}, [I need|I would like|I want] {goods} at {place} "
    "[on|this|next] {day}, {time}, and [I will pay|I have] {price}.",
    "{price} [was agreed|it is|is the price] for {goods}; {who} [lives at|is at|can be found at] {place} and is home "
    "[on|this|next] {day} at {time}.",
    "[Remember|Do not forget]: {day}, {time}, {place}, {goods} for {who}, {price}.",
    "For {price} {who} [gets|receives|is to have] {goods} [on|this|next] {day}, [not later than|by|at] {time}, "
    "[at the door of|at|to] {place}.",
]
