"""What to read beside each lesson: papers and documentation as data. Names and titles are not translated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from kernels.i18n import tr
from pages.parts.text import details


@dataclass(frozen=True)
class Work:
    """A paper or a document. `year` is that of its first version, `place` an arXiv number, a DOI or a URL."""

    authors: str
    title: str
    year: int
    place: str

    @property
    def url(self) -> str:
        if self.place.startswith("https://"):
            return self.place
        return (
            f"https://doi.org/{self.place}" if self.place.startswith("10.") else f"https://arxiv.org/abs/{self.place}"
        )


CUDA_GUIDE = Work(
    "NVIDIA", "CUDA C++ Programming Guide", 2007, "https://docs.nvidia.com/cuda/cuda-c-programming-guide/"
)
CUDNN = Work("Chetlur et al.", "cuDNN: Efficient Primitives for Deep Learning", 2014, "1410.0759")
ARITHMETIC = Work("Dumoulin, Visin", "A guide to convolution arithmetic for deep learning", 2016, "1603.07285")
SUBLINEAR_MEMORY = Work("Chen et al.", "Training Deep Nets with Sublinear Memory Cost", 2016, "1604.06174")
FLASH_ATTENTION = Work(
    "Dao et al.", "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness", 2022, "2205.14135"
)
FLASH_ATTENTION_2 = Work(
    "Dao", "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, "2307.08691"
)
MIXED_PRECISION = Work("Micikevicius et al.", "Mixed Precision Training", 2017, "1710.03740")
BACK_PROPAGATION = Work(
    "Rumelhart, Hinton, Williams", "Learning representations by back-propagating errors", 1986, "10.1038/323533a0"
)
READING: Mapping[str, tuple[Work, ...]] = {  # by the lesson's path
    "threads": (
        CUDA_GUIDE,
        Work("Nickolls et al.", "Scalable Parallel Programming with CUDA", 2008, "10.1145/1365490.1365500"),
    ),
    "tiling": (
        Work("Volkov, Demmel", "Benchmarking GPUs to Tune Dense Linear Algebra", 2008, "10.1109/SC.2008.5214359"),
        Work("Williams, Waterman, Patterson", "Roofline: An Insightful Visual Performance Model for Multicore Architectures", 2009, "10.1145/1498765.1498785"),
    ),
    "hopper": (
        Work("NVIDIA", "Parallel Thread Execution ISA", 2007, "https://docs.nvidia.com/cuda/parallel-thread-execution/"),
        Work("Luo et al.", "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024, "2402.13499"),
    ),
    "direct": (
        Work("LeCun et al.", "Gradient-Based Learning Applied to Document Recognition", 1998, "10.1109/5.726791"),
        ARITHMETIC,
    ),
    "im2col": (
        Work("Chellapilla, Puri, Simard", "High Performance Convolutional Neural Networks for Document Processing", 2006, "https://hal.inria.fr/inria-00112631"),
        CUDNN,
    ),
    "implicit": (
        CUDNN,
        Work("Granlund, Montgomery", "Division by Invariant Integers using Multiplication", 1994, "10.1145/178243.178249"),
    ),
    "winograd": (
        Work("Lavin, Gray", "Fast Algorithms for Convolutional Neural Networks", 2015, "1509.09308"),
        Work("Barabasz et al.", "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2018, "1803.10986"),
    ),
    "fft": (
        Work("Cooley, Tukey", "An Algorithm for the Machine Calculation of Complex Fourier Series", 1965, "10.1090/S0025-5718-1965-0178586-1"),
        Work("Mathieu, Henaff, LeCun", "Fast Training of Convolutional Networks through FFTs", 2013, "1312.5851"),
    ),
    "choose": (
        CUDNN,
        Work("He et al.", "Deep Residual Learning for Image Recognition", 2015, "1512.03385"),
    ),
    "backward": (
        BACK_PROPAGATION,
        ARITHMETIC,
    ),
    "softmax": (
        Work("Milakov, Gimelshein", "Online normalizer calculation for softmax", 2018, "1805.02867"),
    ),
    "layers": (
        Work("Ioffe, Szegedy", "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift", 2015, "1502.03167"),
        Work("Ba, Kiros, Hinton", "Layer Normalization", 2016, "1607.06450"),
        Work("Kingma, Ba", "Adam: A Method for Stochastic Optimization", 2014, "1412.6980"),
        SUBLINEAR_MEMORY,
        MIXED_PRECISION,
    ),
    "train": (
        Work("LeCun et al.", "Gradient-Based Learning Applied to Document Recognition", 1998, "10.1109/5.726791"),
        Work("He et al.", "Deep Residual Learning for Image Recognition", 2015, "1512.03385"),
        SUBLINEAR_MEMORY,
        BACK_PROPAGATION,
        MIXED_PRECISION,
    ),
    "parallel": (
        Work("Huang et al.", "GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism", 2018, "1811.06965"),
        Work("Harlap et al.", "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", 2018, "1806.03377"),
        Work("Shoeybi et al.", "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019, "1909.08053"),
        Work("Rajbhandari et al.", "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2019, "1910.02054"),
        Work("Li et al.", "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", 2020, "2006.15704"),
    ),
    "precision": (
        MIXED_PRECISION,
        Work("Micikevicius et al.", "FP8 Formats for Deep Learning", 2022, "2209.05433"),
        Work("Jacob et al.", "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", 2017, "1712.05877"),
    ),
    "attention": (
        Work("Vaswani et al.", "Attention Is All You Need", 2017, "1706.03762"),
        FLASH_ATTENTION,
        FLASH_ATTENTION_2,
    ),
    "attention_backward": (
        FLASH_ATTENTION,
        FLASH_ATTENTION_2,
        SUBLINEAR_MEMORY,
    ),
    "collectives": (
        Work("Patarasuk, Yuan", "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009, "10.1016/j.jpdc.2008.09.002"),
        Work("Thakur, Rabenseifner, Gropp", "Optimization of Collective Communication Operations in MPICH", 2005, "10.1177/1094342005051521"),
        Work("NVIDIA", "NCCL documentation: Collective Operations", 2015, "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html"),
    ),
    "fusion": (
        Work("Filipovič et al.", "Optimizing CUDA Code By Kernel Fusion: Application on BLAS", 2013, "1305.1183"),
    ),
    "transfers": (
        CUDA_GUIDE,
        Work("Gregg, Hazelwood", "Where is the Data? Why You Cannot Debate CPU vs. GPU Performance Without the Answer", 2011, "10.1109/ISPASS.2011.5762730"),
    ),
    "offload": (
        Work("Amdahl", "Validity of the single processor approach to achieving large scale computing capabilities", 1967, "10.1145/1465482.1465560"),
        Work("Lee et al.", "Debunking the 100X GPU vs. CPU myth: an evaluation of throughput computing on CPU and GPU", 2010, "10.1145/1815961.1816021"),
    ),
}  # fmt: skip


def reading(path: str) -> str:
    """Returns HTML with the folded list of what to read beside a lesson; "" if there is none."""
    found = "".join(map(_line, READING.get(path, ())))
    return details(f'<ul class="kt-reading">{found}</ul>', label=tr("Read more")) if found else ""


def _line(work: Work) -> str:
    link = f'<a href="{escape(work.url)}">{escape(work.title)}</a>'
    return f"<li>{escape(work.authors)}: {link} ({work.year})</li>"
