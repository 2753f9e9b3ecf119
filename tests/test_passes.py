"""How the model is run: precision, full passes, memory, and nothing left behind."""

import copy
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from igos.answer import Answer, answer, classify, pose, within_memory
from igos.descent import Armijo
from igos.errors import IgosError
from igos.explainer import explain
from igos.image import Normalisation
from igos.methods.base import Method
from igos.methods.gradcam import GradCAM
from igos.methods.gradients import Saliency
from igos.methods.igos import IGOS, SEARCH
from igos.methods.plus_plus import IGOSPlusPlus
from igos.methods.rise import RISE
from igos.metrics.curves import deletion, insertion
from igos.models import fast
from igos.models.classifier import Classifier
from igos.models.fast import compiled, images_at_once, make_fast
from igos.passes import Passes
from igos.problem import Problem
from small import TinyNet, random

EXAMPLE = random(1, 3, 12, 10).float()
AGREE = 0.02  # what half precision may change a gradient by: 1/2048 at every one of some steps


def problem_of(net: nn.Module, passes: Passes | None = None) -> Problem:
    image = random(3, 3, 12, 10).float()
    return Problem(net, image, 0.1 * image.flip(0), torch.tensor([0, 1, 2]), chunk=4, fast=passes)


def now() -> list[object]:
    cudnn: Any = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    rounding = [cudnn.conv.fp32_precision, matmul.fp32_precision]
    return [cudnn.deterministic, cudnn.benchmark, *rounding]


@contextmanager
def flags() -> Iterator[None]:
    """CUDA's switches, which exist without CUDA too, are as before."""

    before = now()
    yield
    assert now() == before


@pytest.mark.parametrize(
    ("precision", "compiled", "expected"),
    [
        ("fp32", False, [True, False, "ieee", "ieee"]),
        ("tf32", True, [True, False, "tf32", "tf32"]),
        ("fp16", False, [True, False, "tf32", "tf32"]),
    ],
)
def test_what_holds_while_the_model_runs_and_not_afterwards(
    precision: str, compiled: bool, expected: list[object]
) -> None:
    seen: list[list[object]] = []

    class Watching(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(now())
            if x.isnan().any():
                raise ValueError("NaN")
            return super().forward(x)

    net = Watching()
    problem = problem_of(net, Passes(net, precision, Watching() if compiled else None))
    images = problem.image[:, None]
    with flags():
        problem.score(images)
        problem.score(images.clone().requires_grad_())
    with flags(), pytest.raises(IgosError, match="ValueError: NaN"):
        problem.score(torch.full_like(images, torch.nan))
    assert seen
    assert all(one == expected for one in seen)


@pytest.mark.parametrize(("precision", "rounding"), [("fp32", ["ieee", "ieee"]), ("fp16", None)])
def test_what_runs_the_plain_model_beside_passes(
    precision: str, rounding: list[object] | None
) -> None:
    """The prediction, and methods that look into the model: in float32, exact where that is asked.

    Otherwise CUDA rounds as the caller, or PyTorch by default, lets it.
    """
    seen: list[list[object]] = []

    class Watching(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(now())
            return super().forward(x)

    classifier = Classifier(
        "net",
        Watching(),
        lambda _: EXAMPLE[0],
        Normalisation(),
        fast=Passes(TinyNet().eval(), precision),
        chunk=4,
    )
    problem = pose(classifier, EXAMPLE, 0 * EXAMPLE, 1)
    expected = [True, False, *(rounding or now()[2:])]
    with flags():
        classify(classifier, EXAMPLE)
        for method in (Saliency(), GradCAM()):
            answer(method, problem, model="net")
    assert len(seen) > 3
    assert all(one == expected for one in seen)


def test_what_the_caller_has_set_in_any_way_stays_readable() -> None:
    """Torch refuses to read one of its two switches after a change of the other."""
    problem = problem_of(TinyNet().eval(), Passes(TinyNet().eval(), "tf32"))
    before = torch.get_float32_matmul_precision()
    try:
        for setting in ("medium", "highest"):
            torch.set_float32_matmul_precision(setting)
            problem.score(problem.image[:, None])
            assert torch.get_float32_matmul_precision() == setting
    finally:
        torch.set_float32_matmul_precision(before)


def test_defaults_of_torch_stay_defaults() -> None:
    """What nobody has set follows what the caller sets later; in a process that is still fresh."""
    script = """
import torch
from igos.passes import Passes
with Passes(torch.nn.Identity(), "tf32").ready():
    pass
torch.backends.fp32_precision = "ieee"
print(torch.backends.cudnn.conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision)
"""
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["ieee", "ieee"]


def test_a_compiled_pass_is_always_full() -> None:
    net, sizes = TinyNet().eval(), []

    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            sizes.append(len(x))
            logits: Tensor = net(x)
            return logits

    masks = random(3, 5, 1, 6, 5).sigmoid().float()
    plain, filled = problem_of(net), problem_of(net, Passes(net, None, Counting()))
    for wanted in (False, True):
        ours, theirs = (
            problem.score_masked(masks.clone().requires_grad_(wanted))
            for problem in (filled, plain)
        )
        torch.testing.assert_close(ours, theirs)
    assert sizes == [4] * 8  # 15 masks are 3 full passes and one of 3
    filled.score_masked(masks[:, :1])  # 3 of 4
    filled = replace(filled, chunk=8)
    filled.score_masked(masks[:, :1])
    assert sizes == [4] * 9  # 3 of 8 would be more filling than images


def gradient(problem: Problem, masks: Tensor) -> Tensor:
    masks = masks.clone().requires_grad_()
    (found,) = torch.autograd.grad(problem.score_masked(masks).sum(), masks)
    return found


@pytest.mark.parametrize("certainty", [1.0, 20.0])
def test_the_gradient_in_half_precision(certainty: float) -> None:
    """Also where the class is all but gone, and float16 alone would say 0."""
    net = TinyNet().eval()
    with torch.no_grad():
        net.fc.bias[0] -= certainty
    half = make_fast(net, EXAMPLE, precision="fp16")
    masks = random(3, 5, 1, 6, 5).sigmoid().float()
    exact, ours = gradient(problem_of(net), masks), gradient(problem_of(net, half), masks)
    for row in range(3):
        error = (ours[row] - exact[row]).norm() / exact[row].norm()
        assert error < AGREE
    if certainty > 1:
        scores = problem_of(net).score_masked(masks)[0]
        assert 0 < scores.max() < 1e-6


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_target_without_a_gradient_is_named(precision: str) -> None:
    net = TinyNet().eval()
    problem = problem_of(net, make_fast(net, EXAMPLE, precision=precision))
    problem = replace(problem, target=lambda output: output.argmax(dim=1).float())
    with pytest.raises(IgosError, match="or the target made of it, has no gradient"):
        gradient(problem, random(3, 5, 1, 6, 5).sigmoid().float())


SMOOTH = IGOS(
    resolution=6,
    lambda1=0.01,
    lambda2=0.05,
    noise=0.05,
    path_steps=3,
    first=0.0,  # scaled to its own largest value, a heatmap of nearly nothing would be all rounding
    step_rule=Armijo(alpha_upper=1, alpha_lower=1),
)


def test_half_precision_of_one_number_an_image() -> None:
    class Only(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[:, 1]

    net = Only().eval()
    masks = random(3, 5, 1, 6, 5).sigmoid().float()
    exact, ours = (
        gradient(replace(problem_of(net, passes), target=lambda output: output), masks)
        for passes in (None, make_fast(net, EXAMPLE, precision="fp16"))
    )
    assert (ours - exact).norm() < AGREE * exact.norm()


@pytest.mark.parametrize("step_rule", [Armijo(), SEARCH])
def test_heatmaps_across_precisions(step_rule: Armijo) -> None:
    """Within `AGREE` of the heatmap's largest value, with a fixed step.

    A line search takes one step or another by the last digit, so its masks go apart in any
    precision. What counts there is how good they are: the curves, to 0.01.
    """
    net = TinyNet().eval()
    searching = replace(SMOOTH, step_rule=step_rule)
    exact = problem_of(net, make_fast(net, EXAMPLE, precision="fp32"))
    for precision in ("tf32", "fp16"):
        problem = problem_of(net, make_fast(net, EXAMPLE, precision=precision))
        expected = SMOOTH(exact)
        assert (SMOOTH(problem) - expected).abs().max() < AGREE * expected.max()
        for metric in (deletion, insertion):
            ours, theirs = (
                [curve.auc for curve in metric(exact, searching(one))] for one in (problem, exact)
            )
            assert ours == pytest.approx(theirs, abs=0.01)


def test_precisions() -> None:
    net = TinyNet().eval()
    before = copy.deepcopy(net.state_dict())
    assert make_fast(net, EXAMPLE).precision == "fp32"  # auto, on the CPU
    assert make_fast(net, EXAMPLE).model is net
    assert make_fast(net, EXAMPLE, precision="tf32").model is net
    half = make_fast(net, EXAMPLE, precision="fp16").model
    assert isinstance(half, TinyNet)
    assert half.fc.weight.dtype == torch.float16
    for name, value in net.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])
    with pytest.raises(IgosError, match="unknown precision 'fp8': did you mean 'fp32' or 'fp16'"):
        make_fast(net, EXAMPLE, precision="fp8")


def test_a_model_that_half_precision_would_change() -> None:
    large = TinyNet().eval()
    with torch.no_grad():
        large.conv1.weight *= 1e6  # beyond float16's 65504

    class Stubborn(TinyNet):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x @ torch.eye(10))  # which is float32

    for net in (large, Stubborn().eval()):
        with pytest.raises(IgosError, match="precision 'fp16': it changes this model's output"):
            make_fast(net, EXAMPLE, precision="fp16")


def test_a_model_of_another_precision_keeps_it() -> None:
    double = TinyNet().eval().double()
    passes = make_fast(double, EXAMPLE)
    assert (passes.model, passes.precision) == (double, None)


def test_a_model_without_a_tensor_as_its_answer_stays_as_it_is() -> None:
    class Boxes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = TinyNet()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"boxes": self.net(x)}

    boxes = Boxes().eval()
    passes = make_fast(boxes, EXAMPLE)
    assert passes.model is boxes
    with pytest.raises(IgosError, match="precision 'fp16'"):
        make_fast(boxes, EXAMPLE, precision="fp16")
    assert compiled(passes, EXAMPLE, 4) is passes


def test_a_compiler_that_fails_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passes = make_fast(TinyNet().eval(), EXAMPLE)

    class Broken(nn.Module):
        def forward(self, _: Tensor) -> Tensor:
            raise RuntimeError("no compiler")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: Broken())
    assert compiled(passes, EXAMPLE, 4) is passes
    assert "not compiled: RuntimeError: no compiler" in caplog.text
    monkeypatch.setattr(torch, "compile", lambda model, **_: lambda images: 2 * model(images))
    assert compiled(passes, EXAMPLE, 4) is passes
    assert "would change the model's output" in caplog.text
    monkeypatch.setattr(torch, "compile", lambda model, **_: copy.deepcopy(model))
    quick = compiled(passes, EXAMPLE, 4)
    assert quick.compiled is not None
    assert quick.model is passes.model


def test_fewer_images_in_a_pass_where_memory_runs_out() -> None:
    tried: list[int] = []

    def work(problem: Problem) -> Answer:
        tried.append(problem.chunk)
        if problem.chunk > fits:
            raise torch.OutOfMemoryError
        return Answer(problem.image, [], [], 0.0, None)

    problem = replace(problem_of(TinyNet()), chunk=16)
    fits = 4
    assert torch.equal(within_memory(problem, work).heatmap, problem.image)
    assert tried == [16, 8, 4]
    fits = 0
    with pytest.raises(IgosError, match="out of memory with one image at a time"):
        within_memory(problem, work)
    assert tried[3:] == [16, 8, 4, 2, 1]


def exhausted(*_: object, **__: object) -> Any:
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_too_little_memory_is_not_taken_for_something_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    net = TinyNet().eval()
    passes = make_fast(net, EXAMPLE)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", lambda *_, **__: exhausted)
        assert compiled(passes, EXAMPLE, 4) is passes
        assert "not compiled: OutOfMemoryError" in caplog.text
    with monkeypatch.context() as patch:
        patch.setattr(TinyNet, "half", exhausted)
        with pytest.raises(torch.OutOfMemoryError):
            make_fast(net, EXAMPLE, precision="fp16")
    with monkeypatch.context() as patch:
        patch.setattr(fast, "_device", lambda *_: torch.device("cuda"))
        patch.setattr(fast, "_run", exhausted)
        assert images_at_once(passes, EXAMPLE) == 1


def test_too_little_memory_for_one_photo_is_said_so() -> None:
    net = TinyNet().eval()
    net.forward = exhausted  # type: ignore[method-assign]
    classifier = Classifier("net", net, lambda _: EXAMPLE[0], Normalisation())
    with pytest.raises(IgosError, match="out of memory with one image at a time"):
        explain(EXAMPLE, model=classifier)


def test_images_at_once_on_the_cpu() -> None:
    passes = make_fast(TinyNet().eval(), EXAMPLE)
    assert images_at_once(passes, EXAMPLE) == fast.MOST["cpu"]


def test_a_classifier_is_run_the_way_it_was_prepared() -> None:
    net = TinyNet().eval()
    passes = Passes(net, "tf32")
    classifier = Classifier(
        "net", net, lambda _: EXAMPLE[0], Normalisation(std=(0.5, 0.5, 0.5)), fast=passes, chunk=3
    )
    problem = pose(classifier, EXAMPLE, 0 * EXAMPLE, 1)
    assert (problem.fast, problem.chunk, problem.std) == (passes, 3, (0.5, 0.5, 0.5))
    bare = pose(replace(classifier, fast=None, chunk=None), EXAMPLE, 0 * EXAMPLE, 1)
    assert (bare.fast, bare.chunk) == (None, fast.MOST["cpu"])


@pytest.mark.gpu
# torch's own, when compiling
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu() -> None:
    """Half precision and compiled: close to the CPU's float32, and the same every time."""
    net = TinyNet().eval()
    on_cpu = problem_of(net)
    method = replace(SMOOTH, noise=0.0)  # a GPU's generator draws other noise
    exact = method(on_cpu)
    module = copy.deepcopy(net).cuda().requires_grad_(False)
    half = make_fast(module, EXAMPLE)
    assert half.precision == "fp16"
    chunk = images_at_once(half, EXAMPLE)
    assert chunk == fast.MOST["cuda"]
    quick = compiled(half, EXAMPLE, 4)
    assert quick.compiled is not None
    for passes, at_once in ((half, chunk), (quick, 4)):
        problem = replace(
            on_cpu,
            model=module,
            image=on_cpu.image.cuda(),
            baseline=on_cpu.baseline.cuda(),
            fast=passes,
            chunk=at_once,
        )
        assert (method(problem).cpu() - exact).abs().max() < AGREE * exact.max()
        for step_rule in (Armijo(), SEARCH):
            searching = replace(SMOOTH, step_rule=step_rule)
            assert torch.equal(searching(problem), searching(problem))


def waits(work: Callable[[Problem], object], problem: Problem) -> int:
    """How often the work waits for the GPU, once it has been done before."""
    work(problem)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            work(problem)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message) for warning in caught)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "method_of",
    [
        lambda n: IGOS(resolution=6, max_iterations=n),
        lambda n: replace(IGOS.two_sided(resolution=6), max_iterations=n),
        lambda n: IGOSPlusPlus(resolution=6, max_iterations=n),
        lambda n: RISE(masks=n),
    ],
    ids=["igos", "igos-two-sided", "igos++", "rise"],
)
def test_an_iteration_does_not_wait_for_the_gpu(method_of: Callable[[int], Method]) -> None:
    module = TinyNet().eval().cuda().requires_grad_(False)
    image = random(3, 3, 12, 10).float().cuda()
    passes = make_fast(module, EXAMPLE)
    problem = Problem(module, image, 0 * image, torch.tensor([0, 1, 2]), chunk=4, fast=passes)
    assert waits(lambda p: p.image.sum().item(), problem) == 1
    assert waits(method_of(9), problem) == waits(method_of(1), problem)
