"""What the rounds gave, and the ratios between engines."""
import statistics

from engines import OWN


class Missing(Exception):
    """Why a figure is not there."""


class Results:
    def __init__(self):
        self.runs = {}    # model: engine: [one result of each round, as engines.py gives it]
        self.alone = {}   # model: name: what only Invar is measured for (own.py)
        self.reasons = {}  # model: name: why it could not be measured
        self.files = {}   # model: bytes of its file

    def add(self, model, engine, result):
        self.runs.setdefault(model, {}).setdefault(engine, []).append(result)

    def of(self, model):
        if model not in self.runs:
            raise Missing(f"{model} was not measured")
        return self.runs[model]

    def speeds(self, model, engine, test):
        """Of each round; None where a run has none."""
        return [run["speeds"].get(test) for run in self.of(model).get(engine, [])]

    def speed(self, model, test, engine=OWN):
        known = [v for v in self.speeds(model, engine, test) if v]
        if not known:
            raise Missing(f"{engine} has no {test}")
        return statistics.median(known)

    def ratio(self, model, test, engine):
        """Invar over the engine: the median of the rounds' ratios, so that a slow stretch of the machine counts for both."""
        pairs = zip(self.speeds(model, OWN, test), self.speeds(model, engine, test))
        ratios = [own / other for own, other in pairs if own and other]
        if not ratios:
            raise Missing(f"no round has {test} of both Invar and {engine}")
        return statistics.median(ratios)

    def silent_peers(self, model, test):
        """Peers without a figure."""
        return [e for e in self.of(model) if e != OWN and not any(self.speeds(model, e, test))]

    def best_peer(self, model, test, but=()):
        """The peer with the highest median."""
        peers = [e for e in self.of(model) if e != OWN and e not in but and any(self.speeds(model, e, test))]
        if not peers:
            raise Missing(f"no peer has {test}")
        return max(peers, key=lambda e: self.speed(model, test, e))

    def fields(self, model, name):
        """A field of Invar's runs, of each round; None where it is not there."""
        return [run.get(name) for run in self.of(model).get(OWN, [])]

    def field(self, model, name):
        values = [v for v in self.fields(model, name) if v]
        if not values:
            raise Missing(f"`invar bench` of this program gives no {name}")
        return statistics.median(values)

    def own(self, model, name):
        self.of(model)
        if name not in self.alone.get(model, {}):
            raise Missing(self.reasons.get(model, {}).get(name, f"{name} was not measured"))
        return self.alone[model][name]
