"""What llama.cpp and its relatives have in common: batches of rows, and contexts made for a number of sequences."""
import ctypes

from procedure import Report, arguments, measure, random_ids

POINTER = ctypes.c_void_p
ROWS = 2048  # of a batch


class Engine:
    def __init__(self, api, positions):
        self.api, self.vocab, self.positions = api, api.vocab, positions
        self.batch, self.context, self.sequences = api.batch(ROWS), None, 0

    def begin(self, sequences):
        if sequences != self.sequences:
            if self.context:
                self.api.free(self.context)
            self.context, self.sequences = self.api.context(sequences, self.positions), sequences
            if not self.context:
                raise RuntimeError(f"no context for {sequences} sequences of {self.positions} tokens")
        self.api.clear(self.context)

    def decode(self, rows):
        for first in range(0, len(rows), ROWS):
            self._decode_batch(rows[first:first + ROWS])

    def _decode_batch(self, rows):
        b = self.batch
        b.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, wanted
            b.seq_id[i][0] = sequence
        code = self.api.decode(self.context, b)
        if code:
            raise RuntimeError(f"llama_decode gives {code}")
        for i, row in enumerate(rows):
            if row[3]:  # waits for them; a row without logits has none to read
                values = self.api.logits(self.context, i)
                if not values or values[0] != values[0]:
                    raise RuntimeError("no logits, or not a number")


def bound(library, name, result, *arguments):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


def run(make_api, version):
    """make_api(threads) gives open(path), vocab, batch(rows), context(sequences, positions), and of the C API decode, logits, clear
    and free."""
    path, threads, tests = arguments()
    report, api = Report(version), make_api(threads)
    api.open(path)
    engine = Engine(api, max(t.positions() for t in tests) + 64)
    engine.begin(1)
    report.loaded()
    engine.decode([(0, 0, 0, True)])
    report.first_token()
    engine.decode([(t, 1 + i, 0, i == 31) for i, t in enumerate(random_ids(32, engine.vocab))])  # warm-up
    measure(report, engine, tests)
