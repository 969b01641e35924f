"""OpenVINO GenAI, which reads the GGUF file itself. Command line and output: procedure.py.

Its pipeline gives tokens, not logits: a prompt counts until its first token, steps from there to the last one.
"""
from importlib.metadata import version

import numpy
import openvino
import openvino_genai

from procedure import Report, Test, arguments, random_ids, timed


class Engine:
    def __init__(self, path, threads):
        self.pipeline = openvino_genai.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=threads)
        self.vocab = len(self.pipeline.get_tokenizer().get_vocab())

    def generate(self, test, steps):
        """Seconds to the first token, and in all."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = 1 + steps, True, False
        ids = numpy.array([random_ids(test.prompt, self.vocab) for _ in range(test.sequences)], dtype=numpy.int64)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
        result = []
        seconds = timed(lambda: result.append(self.pipeline.generate(inputs, config)))
        if [len(tokens) for tokens in result[0].tokens] != [1 + steps] * test.sequences:
            raise RuntimeError(f"{test.name}: {[len(tokens) for tokens in result[0].tokens]} tokens came")
        return result[0].perf_metrics.get_ttft().mean / 1e3, seconds


def main():
    path, threads, tests = arguments()
    report = Report(version("openvino-genai"))
    engine = Engine(path, threads)
    report.loaded()
    engine.generate(Test("prompt:1"), 0)
    report.first_token()
    engine.generate(Test("prompt:32"), 4)  # warm-up
    for test in tests:
        first_s, all_s = engine.generate(test, test.steps)
        report.speed(test, test.prompt / first_s if test.kind == "prompt" else test.sequences * test.steps / (all_s - first_s))


main()
