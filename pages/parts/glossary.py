"""The terms of the field as data, and where a text uses them first.

A term has a meaning and a lesson with a clue: the first chapter of the lesson in whose texts or parameters the pattern
finds something shows what the term means. A picture is rows of cells: r read, w written, i input, f filter, o output,
s workspace, - any other cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from kernels.i18n import cached, mark, tr
from pages._lessons import LESSONS, Lesson

if TYPE_CHECKING:
    from pages.parts.chapters import Chapter

PATH, PARAM = "glossary", "term"  # of the page, and the URL parameter that selects a term


@dataclass(frozen=True)
class Term:
    key: str
    words: str  # its forms, separated by commas; the first is its name
    text: str
    lesson: str  # path
    clue: str  # a pattern
    picture: str = ""
    not_in: tuple[str, ...] = ()  # lessons in which its words mean something else

    @property
    def name(self) -> str:
        return tr(self.words).partition(",")[0]

    def place(self) -> tuple[Lesson, int]:
        """Returns the lesson that shows the term, and the chapter, from 0; the first if no chapter has the clue."""
        lesson = next(each for each in LESSONS if each.path == self.lesson)
        story = import_module(lesson.chapters).STORY
        return lesson, next((n for n, one in enumerate(story.chapters) if re.search(self.clue, _source(one))), 0)


GROUPS: Mapping[str, tuple[Term, ...]] = {
    mark("Threads"): (
        Term("kernel", mark("kernel, kernels"), mark("A kernel is a function that runs on the GPU in many threads."), "threads", "same.code"),
        Term("thread", mark("thread, threads"), mark("A thread is one run of the kernel’s code, with an index of its own."), "threads", "one.thread.for.each.element", "w-------"),
        Term("warp", mark("warp, warps"), mark("A warp is 32 threads that execute the same instruction at the same time."), "threads", "32.threads", "wwwwwwww/wwwwwwww/wwwwwwww/wwwwwwww"),
        Term("lane", mark("lane, lanes"), mark("A lane is one of the 32 threads of a warp."), "threads", "32.lanes", "--------/--w-----/--------/--------"),
        Term("block", mark("block, blocks"), mark("A block is a group of threads that run on one SM and use its shared memory together."), "threads", "form.blocks", "wwww----/wwww----/--------/--------", ("winograd", "fusion", "collectives")),
        Term("grid", mark("grid, grids"), mark("The grid is all blocks of one kernel launch."), "threads", "a.grid", "iiii-iiii/iiii-iiii/---------/iiii-iiii/iiii-iiii"),
        Term("launch", mark("launch, launches"), mark("A launch starts a kernel on the GPU. It takes time even if the kernel does nothing."), "fusion", "each.launch"),
        Term("sm", mark("SM, SMs"), mark("An SM (streaming multiprocessor) is one of the GPU’s processors. It has registers and shared memory of its own."), "threads", "form.blocks"),
        Term("wave", mark("wave, waves"), mark("A wave is the blocks that run on the GPU at the same time. The next wave follows when they are done."), "tiling", "waves", "wwww/wwww/----/----", ("fft",)),
        Term("divergence", mark("divergence"), mark("Divergence: lanes of one warp take different branches, so both branches run one after the other."), "threads", "divergence", "ww--w-ww/--ww-w--"),
        Term("barrier", mark("barrier, barriers"), mark("At a barrier each thread of a block waits until all of them have arrived."), "softmax", "barrier"),
        Term("mbarrier", mark("mbarrier, mbarriers"), mark("An mbarrier is a barrier in shared memory. Its phase ends when enough threads and enough bytes of copies have arrived."), "hopper", "an.mbarrier"),
        Term("cluster", mark("cluster, clusters"), mark("A cluster is a few blocks that run at the same time and reach each other’s shared memory."), "hopper", "form.a.cluster", "wwww-wwww/wwww-wwww", ("layers", "train", "collectives", "parallel")),
        Term("occupancy", mark("occupancy"), mark("Occupancy is the share of an SM’s places for warps that a kernel fills."), "tiling", "255.registers"),
    ),
    mark("Memory"): (
        Term("global", mark("global memory"), mark("Global memory is the GPU’s large memory. All threads can read and write it."), "tiling", "global.memory"),
        Term("hbm", mark("HBM"), mark("HBM is the kind of memory chip, beside the GPU chip, that holds global memory."), "fusion", "global.memory"),
        Term("cache", mark("cache, caches"), mark("A cache keeps copies of data that was used lately, near the SMs."), "direct", "caches"),
        Term("l2", mark("L2"), mark("L2 is the cache that all SMs share."), "direct", "caches"),
        Term("l1", mark("L1 cache"), mark("The L1 cache is a small cache of one SM. Its chip also holds the SM’s shared memory."), "threads", "L1.cache"),
        Term("shared", mark("shared memory"), mark("Shared memory is a small, fast memory on the SM for the threads of one block."), "tiling", "shared.memory"),
        Term("register", mark("register, registers"), mark("A register holds one value of one thread. No memory is faster."), "tiling", "in.registers"),
        Term("sector", mark("sector, sectors"), mark("A sector is 32 bytes, the unit in which the memory system moves data."), "threads", "sectors.of.32.bytes", "rrrrrrrr"),
        Term("coalescing", mark("coalescing, coalesced"), mark("A load is coalesced if a warp’s lanes read neighbouring addresses. Few sectors then hold all of them."), "threads", "coalesced", "rrrrrrrr/--------/--------/--------"),
        Term("bank", mark("bank, banks"), mark("A bank is one of 32 parts of shared memory. It delivers one word at a time."), "threads", "32.banks", "--r-----/--r-----/--r-----/--r-----"),
        Term("conflict", mark("bank conflict, bank conflicts"), mark("In a bank conflict, lanes read different words of one bank. The read then takes several passes."), "threads", "bank.conflict", "--r-----/--r-----/--------/--------"),
        Term("wavefront", mark("wavefront, wavefronts"), mark("A wavefront is one pass over shared memory. It delivers a part of a warp’s request."), "threads", "takes.4.passes"),
        Term("copyengine", mark("copy engine, TMA"), mark("The copy engine (TMA) of an SM copies whole boxes of a tensor. One thread starts a copy, and no thread computes addresses."), "hopper", "the.copy.engine", "", ("transfers", "offload", "collectives", "parallel", "train")),
        Term("swizzle", mark("swizzle, swizzled"), mark("A swizzle reorders the 16-byte pieces of each row of a tile. A column is then spread over all banks."), "hopper", "order,.the.swizzle", "r-------/-r------/--r-----/---r----"),
        Term("padding", mark("padding"), mark("Padding is extra elements at an edge, such as zeros around an image or one unused word after each row."), "threads", "Padding", "iiiiiii-/iiiiiii-/iiiiiii-/iiiiiii-"),
        Term("stride", mark("stride, strides"), mark("The stride is the distance between one element that is used and the next."), "threads", "stride", "r--r--r-/-r--r--r"),
        Term("layout", mark("NCHW, NHWC"), mark("NCHW and NHWC are orders in which images are stored. The axis of the last letter varies fastest."), "threads", "NCHW"),
        Term("workspace", mark("workspace"), mark("A workspace is memory that an algorithm needs beside its input and output."), "im2col", "of.all.memory.in.use", "ssssssss/ssssssss"),
        Term("cold", mark("cold, hot"), mark("Before a cold run the caches are overwritten. A hot run finds the data of the run before in them."), "softmax", "{real_time}"),
    ),
    mark("Speed"): (
        Term("fma", mark("multiply-add, multiply-adds"), mark("A multiply-add computes a · b + c in one instruction."), "tiling", "multiply-add"),
        Term("bandwidth", mark("bandwidth"), mark("Bandwidth is how many bytes a memory delivers in one second."), "softmax", "memory.bandwidth"),
        Term("intensity", mark("arithmetic intensity"), mark("Arithmetic intensity is the number of operations for each byte that is moved."), "softmax", "little.arithmetic"),
        Term("roofline", mark("roofline"), mark("The roofline is the highest speed that bandwidth and arithmetic allow at an arithmetic intensity."), "tiling", "What.limits.it.now"),
        Term("precision", mark("FP32, FP16, BF16, TF32"), mark("FP32 numbers have 32 bits, FP16 and BF16 numbers 16. TF32 keeps fewer digits of FP32."), "tiling", "FP16"),
        Term("mantissa", mark("mantissa"), mark("The mantissa holds the digits of a floating-point number after its leading 1."), "precision", "and.\\[mantissa", "-fffffoooooooooo"),
        Term("exponent", mark("exponent, exponents"), mark("The exponent of a floating-point number is its power of two. Its bits set the range of a format."), "precision", "sign.*exponent", "-fffff----------", ("softmax", "attention")),
        Term("subnormal", mark("subnormal"), mark("A subnormal number is smaller than the smallest normal number. It has fewer digits."), "precision", "it.is.subnormal"),
        Term("int8", mark("INT8"), mark("INT8 numbers are whole numbers from −128 to 127. A scale turns them into real numbers."), "precision", "INT8 products"),
        Term("lossscale", mark("loss scale, loss scales"), mark("A loss scale multiplies the loss, and with it all gradients, so that small ones are stored."), "precision", "Multiply.the.loss"),
        Term("ladder", mark("ladder, ladders"), mark("A ladder is a list of kernels that compute the same result in different ways."), "tiling", "first.kernel"),
        Term("rung", mark("rung, rungs"), mark("A rung is one kernel of a ladder."), "tiling", "kernel.before"),
    ),
    mark("Techniques"): (
        Term("tile", mark("tile, tiles"), mark("A tile is a small part of a matrix. A block copies it close to its threads and uses it many times."), "tiling", "tile", "iiii----/iiii----/iiii----/iiii----", ("winograd",)),
        Term("dot", mark("dot product, dot products"), mark("A dot product multiplies two rows of numbers pair by pair and adds the products."), "attention", "dot.product"),
        Term("gemm", mark("GEMM"), mark("GEMM (general matrix multiply) is the product of two matrices."), "im2col", "GEMM"),
        Term("token", mark("token, tokens"), mark("A token is a piece of text, such as a word. A model computes with one row of numbers for each."), "attention", "A.token"),
        Term("query", mark("query, queries"), mark("A query is a token’s row of numbers that is compared with all keys."), "attention", "one.query.first", "i---/----/----/----"),
        Term("key", mark("key, keys"), mark("A key is a token’s row of numbers that queries are compared with."), "attention", "one.query.first", "f---/f---/f---/f---"),
        Term("score", mark("score, scores"), mark("A score is the dot product of a query and a key. It says how well they match."), "attention", "score", "s---/----/----/----"),
        Term("head", mark("head, heads"), mark("A head is one of several attentions computed side by side. Each has queries and keys of its own."), "attention", "Each.head"),
        Term("convolution", mark("convolution, convolutions"), mark("A convolution slides a filter over an image. Each output pixel is a sum of weighted pixels."), "direct", "A.convolution", "rrr---/rrr---/rrr---/------"),
        Term("window", mark("window, windows"), mark("A window is the part of the image that a filter covers at one position."), "direct", "window", "------/-rrr--/-rrr--/-rrr--"),
        Term("channel", mark("channel, channels"), mark("A channel is one layer of an image, such as its red values."), "direct", "channels", "iii-fff-ooo/iii-fff-ooo"),
        Term("tap", mark("tap, taps"), mark("A tap is one weight of a filter."), "winograd", "taps", "f--/---/---"),
        Term("atomic", mark("atomic addition, atomic additions, atomics"), mark("An atomic addition reads, adds and writes a value in one step. Additions to one address happen one after the other."), "backward", "atomic.additions", "w-------/w-------/w-------/w-------"),
        Term("transposed", mark("transposed convolution, transposed convolutions"), mark("A transposed convolution spreads each pixel over a window of a larger image. It is the gradient of a convolution’s input."), "backward", "transposed.convolution.spreads", "i---ooo/----ooo/----ooo"),
        Term("logsumexp", mark("log-sum-exp"), mark("The log-sum-exp of a row is the logarithm of the sum of its exponentials. With it, each weight follows from its score."), "attention_backward", "log-sum-exp"),
        Term("spectrum", mark("spectrum, spectra"), mark("A spectrum holds the strength and the phase of each wave in an image."), "fft", "spectra"),
        Term("magnitude", mark("magnitude, magnitudes"), mark("The magnitude of a complex number is its length as an arrow: how strong the wave is."), "fft", "the.magnitude"),
        Term("phase", mark("phase, phases"), mark("The phase of a complex number is its angle as an arrow: where the wave begins."), "fft", "the.phase", "", ("backward",)),
        Term("butterfly", mark("butterfly, butterflies"), mark("A butterfly computes a sum and a difference of two numbers. An FFT consists of butterflies."), "fft", "butterfly"),
        Term("cublas", mark("cuBLAS"), mark("cuBLAS is NVIDIA’s library of matrix products."), "tiling", "cuBLAS"),
        Term("cudnn", mark("cuDNN"), mark("cuDNN is NVIDIA’s library for neural networks, with many convolutions."), "choose", "Libraries.choose"),
        Term("cpasync", mark("cp.async"), mark("cp.async is an instruction that copies to shared memory while the thread goes on."), "tiling", "double-buffer"),
        Term("tensor", mark("tensor core, tensor cores"), mark("A tensor core multiplies two small matrices in one instruction of a warp."), "tiling", "tensor.core"),
        Term("wgmma", mark("wgmma"), mark("wgmma is an instruction of 128 threads. It multiplies two matrices in shared memory and adds them to sums in registers."), "hopper", "reads.both.tiles"),
        Term("warpgroup", mark("warpgroup, warpgroups"), mark("A warpgroup is four warps, 128 threads, that run wgmma together."), "hopper", "form.a.warpgroup", "wwwwwwww/wwwwwwww/wwwwwwww/wwwwwwww"),
        Term("dp4a", mark("dp4a"), mark("dp4a is an instruction that adds four products of INT8 values."), "tiling", "dp4a"),
        Term("fragment", mark("fragment, fragments"), mark("A fragment is the part of a small matrix that a lane holds in registers for a tensor core."), "tiling", "fragments"),
        Term("im2col", mark("im2col"), mark("im2col copies each window of an image into a column of a matrix. The convolution becomes a GEMM."), "im2col", "im2col.copies", "s-------/s-------/s-------/s-------"),
        Term("epilogue", mark("epilogue, epilogues"), mark("An epilogue is work on each result before it is stored, such as bias or ReLU."), "fusion", "stays.in.a.register"),
        Term("fusion", mark("fusion, fused"), mark("Fusion makes several kernels one. The values between them are not stored."), "fusion", "One.kernel.can.do.all"),
        Term("batchnorm", mark("batch norm"), mark("Batch norm scales and shifts each channel by numbers from training."), "fusion", "batch.norm"),
        Term("relu", mark("ReLU"), mark("ReLU replaces negative values by 0."), "fusion", "ReLU"),
        Term("gradient", mark("gradient, gradients"), mark("The gradient of a number says how the loss changes when this number grows."), "layers", "is.the.gradient.of.y"),
        Term("backward", mark("backward pass"), mark("The backward pass computes gradients, from the loss back to the first layer."), "layers", "the.backward.pass"),
        Term("mask", mark("mask, masks"), mark("A mask holds one bit for each element, such as whether it was positive."), "layers", "A.\\[mask", "s-s--ss-", ("softmax", "attention")),
        Term("activation", mark("activation, activations"), mark("An activation is a value that a layer computes. The backward pass may need it later."), "layers", "this.activation"),
        Term("recompute", mark("recompute, checkpointing"), mark("To recompute is to throw activations away and compute them again in the backward pass. Checkpointing keeps a few to start from."), "layers", "recompute"),
        Term("crossentropy", mark("cross-entropy"), mark("Cross-entropy is a loss. It is small if the right class has a large weight."), "layers", "This.is.cross-entropy", "-----w--/-----o--"),
        Term("layernorm", mark("layer norm"), mark("Layer norm gives each row the mean 0 and the variance 1, then scales and shifts it."), "layers", "layer.norm", "ssssssss/--------/--------"),
        Term("optimiser", mark("optimiser, optimisers"), mark("An optimiser changes the weights by their gradients, a small step at a time."), "layers", "the.optimiser"),
        Term("momentum", mark("momentum"), mark("With momentum a step follows a running mean of the gradients, not only the last one."), "layers", "With.momentum"),
        Term("adam", mark("Adam"), mark("Adam is an optimiser. Each weight has a step size of its own, from the mean square of its gradients."), "layers", "Adam.also"),
        Term("epoch", mark("epoch, epochs"), mark("An epoch is one pass over all training data."), "layers", "One.epoch"),
        Term("lossscaling", mark("loss scaling"), mark("Loss scaling multiplies the loss by a large factor. Small gradients then do not become 0 in FP16."), "layers", "loss.scaling"),
        Term("master", mark("master weights"), mark("Master weights are an FP32 copy of FP16 weights. The optimiser changes this copy, so small steps are not lost."), "layers", "master.weights"),
        Term("quantisation", mark("quantisation"), mark("Quantisation rounds numbers to a few integer values, such as INT8, with a common scale."), "tiling", "quantisation"),
        Term("scatter", mark("scatter"), mark("In a scatter each thread writes or adds to places that its data selects. Several threads can hit one place."), "layers", "This.is.a.scatter", "--w-----/--w--w--", ("collectives",)),
        Term("gather", mark("gather"), mark("In a gather each thread reads from several places and writes to one of its own."), "layers", "This.is.a.gather", "r--r----/-r---r--", ("collectives",)),
        Term("batch", mark("batch, batches"), mark("The batch is the number of images that go through a network in one step."), "train", "The.batch.is", "iiii/iiii/iiii/iiii"),
        Term("rate", mark("learning rate"), mark("The learning rate says how far an optimiser moves each weight in one step."), "train", "The.learning.rate.says"),
        Term("cudagraph", mark("CUDA graph, CUDA graphs"), mark("A CUDA graph holds many launches. The processor submits all of them at once."), "train", "A.CUDA.graph"),
        Term("softmax", mark("softmax"), mark("Softmax turns a row of numbers into positive weights that add up to 1."), "softmax", "Softmax.turns"),
    ),
    mark("Around the kernel"): (
        Term("host", mark("host"), mark("The host is the processor and the memory of the computer in which the GPU is."), "transfers", "\\(host\\)"),
        Term("pageable", mark("pageable"), mark("Pageable memory may be moved by the system. The GPU cannot read it directly."), "transfers", "is.pageable"),
        Term("pinned", mark("pinned memory, pinned"), mark("Pinned memory cannot be moved by the system, so the GPU reads and writes it directly."), "transfers", "Pinned.memory.stays"),
        Term("stream", mark("stream, streams"), mark("A stream is a queue of operations that run in their order. Operations of different streams can overlap."), "transfers", "A.stream.is", not_in=("attention", "tiling", "implicit")),
        Term("event", mark("event, events"), mark("An event marks a place in a stream. Another stream can wait for it, and it has a time."), "transfers", "Events.keep"),
        Term("pool", mark("memory pool, memory pools"), mark("A memory pool keeps released memory, and gives it to the next array without asking the driver."), "transfers", "memory.pool"),
        Term("core", mark("core, cores"), mark("A core is one of the processor’s units that run a program. Each can run one of its own."), "offload", "has.few.cores"),
        Term("amdahl", mark("Amdahl’s law"), mark("Amdahl’s law: the part of a program that does not get faster limits how fast the whole can be."), "offload", "Amdahl.s.law"),
        Term("leak", mark("leak, leaks"), mark("A leak is memory that a program no longer needs and still keeps."), "transfers", "A.leak"),
    ),
    mark("Many GPUs"): (
        Term("reducescatter", mark("reduce-scatter"), mark("A reduce-scatter adds the arrays of all GPUs. Each GPU keeps one chunk of the sum."), "collectives", "is.a.reduce-scatter", "ww------/rr------/rr------"),
        Term("allgather", mark("all-gather"), mark("In an all-gather every GPU has one chunk and receives those of all others."), "collectives", "is.an.all-gather", "rrww----/wwrr----"),
        Term("latency", mark("latency"), mark("Latency is the time until the first byte arrives, however few bytes follow."), "collectives", "its.latency"),
    ),
}  # fmt: skip
TERMS = {term.key: term for terms in GROUPS.values() for term in terms}
_MARKED = re.compile(r"(\[[^\]]*\]\([^)]*\))")  # words with a role or a link


def _source(chapter: Chapter) -> str:
    """Returns everything that a chapter says and sets, as it is written in its file."""
    question = [chapter.question.text, chapter.question.reveal] if chapter.question else []
    return "\n".join([chapter.title, *chapter.text, chapter.nudge, *question, *chapter.params.values()])


def marked(texts: Iterable[str], path: str) -> tuple[list[str], list[Term]]:
    """Returns a chapter's sentences in which the first use of each term is written [word](~key), and these terms.

    `path` is the lesson's. Words that have a role or a link already stay as they are.
    """
    pattern, seen = _pattern(), {}

    def replace(match: re.Match[str]) -> str:
        term = TERMS[match.lastgroup or ""]
        if term.key in seen or path in term.not_in:
            return match.group()
        seen[term.key] = term
        return f"[{match.group()}](~{term.key})"

    return [_outside(text, lambda piece: pattern.sub(replace, piece)) for text in texts], list(seen.values())


def _outside(text: str, change: Callable[[str], str]) -> str:
    return "".join(piece if n % 2 else change(piece) for n, piece in enumerate(_MARKED.split(text)))


@cached(4)
def _pattern() -> re.Pattern[str]:
    """Returns the pattern of all forms of all terms, the longest first, in the language of the reader."""
    forms = sorted(_forms(), key=lambda form: -len(form[1]))
    by_key: dict[str, list[str]] = {}
    for key, word in forms:
        by_key.setdefault(key, []).append(_either_case(word))
    keys = sorted(by_key, key=lambda key: -max(map(len, by_key[key])))
    groups = (f"(?P<{key}>{'|'.join(by_key[key])})" for key in keys)
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(groups)})(?![\w-])")


def _forms() -> Iterator[tuple[str, str]]:
    for term in TERMS.values():
        for word in tr(term.words).split(","):
            yield term.key, word.strip()


def _either_case(word: str) -> str:
    """Returns the pattern of a word that may begin a sentence. Abbreviations are matched as they are."""
    rest = re.escape(word[1:])
    return f"[{word[0]}{word[0].upper()}]{rest}" if word.islower() else re.escape(word)
