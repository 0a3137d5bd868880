"""What vLLM is told of a constraint, and who masks its tokens in the end."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

pytest.importorskip("torch", reason="no engine is installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # vLLM and torch warn of their own code
    import torch
    import xgrammar
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    from vllm.engine.arg_utils import EngineArgs
    from vllm.sampling_params import SamplingParams
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.structured_output.request import StructuredOutputRequest
    from vllm.v1.structured_output.utils import get_outlines_vocabulary

from rel_batch import constraint_for, read_instances
from rel_batch.config import REFUSED_BACKENDS, Backend, validate_config
from rel_batch.constraints import (
    Constraint,
    Kind,
    OneOf,
    Rule,
    Seq,
    Subset,
    Text,
    separated,
    texts,
)
from rel_batch.constraints.dialects import (
    MAX_ONE_TEXT_CHARS,
    MAX_TEXT_CHARS,
    UntranslatableError,
    render_regex,
)
from rel_batch.constraints.smiles_grammar import SMILES, SMILES_RULES
from rel_batch.engine.grammar_spec import TRAP, read_spec, write_spec
from rel_batch.engine.structured_outputs import (
    carrier_of,
    compile_check,
    matcher_of,
    structured_outputs_for,
)
from rel_batch.errors import ConfigError
from rel_batch.tasks import TASKS, task_for

BACKENDS: tuple[Backend, ...] = get_args(Backend)
INSTANCES = list({i.task: i for i in read_instances("bundled")}.values())
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from rel_batch.engine import grammar_backend
    from rel_batch.engine.vllm_arguments import OWN_ARGUMENTS, REFUSED_ARGUMENTS, check_engine_args

TAXA = Constraint("set", OneOf((Text("No"), Seq((Text("Yes: "), Subset(("1", "12", "2"), ", "))))))
CHOICE = Constraint("format", texts(("<Yes>", "<No>")))


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(["Yes: 12, 2 <smiles>CC(=O)O</smiles>"] * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="</s>", pad_token="<pad>")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_constraint_of_every_task_compiles(
    name: str, backend: Backend, tokenizer: PreTrainedTokenizerFast
) -> None:
    instance = next(i for i in INSTANCES if i.task == name)
    for kind in task_for(name).constraint_kinds:
        constraint = constraint_for(instance, kind)
        assert compile_check(constraint, backend, tokenizer) is None
        params = structured_outputs_for(constraint, backend)
        assert (params is None) == (kind == "none")


def test_a_constraint_that_is_no_grammar_goes_to_our_matcher_whatever_the_backend() -> None:
    for backend in BACKENDS:
        assert matcher_of(TAXA, backend) == "machine"
        params = structured_outputs_for(TAXA, backend)
        assert params is not None
        assert read_spec(params.grammar or "") is not None


def test_a_backend_by_name_decodes_every_grammar_itself() -> None:
    assert matcher_of(CHOICE, "guidance") == "guidance"
    assert matcher_of(CHOICE, "xgrammar") == "xgrammar"
    params = structured_outputs_for(CHOICE, "xgrammar")
    assert params is not None
    assert read_spec(params.grammar or "") is None


@pytest.mark.parametrize("backend", ["default", "guidance"])
def test_guidance_is_reached_through_our_plugin_alone(backend: Backend) -> None:
    """vLLM itself would only log what guidance refuses, and end the reply as if it were whole."""
    constraint = Constraint("syntax", SMILES, SMILES_RULES)
    params = structured_outputs_for(constraint, backend)
    assert params is not None
    spec = read_spec(params.grammar or "")
    assert spec is not None
    assert spec["backend"] == "guidance"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", task_for("REL-B1").constraint_kinds[1:])
def test_ten_thousand_taxa_are_left_to_our_matcher_by_every_backend(
    kind: Kind, backend: Backend, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Backends take up to 43 s to compile them, and more memory than they are worth."""
    names = [f'taxon "{i}"' for i in range(10_000)]
    question = "Is there homoplasy?\n" + "".join(f">{name}\nACGT\n" for name in names)
    answer = {"label": "yes", "taxa": names[:1]}
    record = {"task": "REL-B1", "question": question, "answer": answer, "metadata": {}}
    constraint = constraint_for({"id": "b", **record}, kind)
    assert matcher_of(constraint, backend) == "machine"
    assert compile_check(constraint, backend, tokenizer) is None


def test_a_list_that_backends_compile_in_a_second_is_left_to_them() -> None:
    few, many = (
        Constraint("format", separated(texts(tuple(names)), ", ", 1, None))
        for names in (
            [f"{i:010d}" for i in range(MAX_TEXT_CHARS // 10 - 1)],
            [f"{i:010d}" for i in range(MAX_TEXT_CHARS // 10 + 1)],
        )
    )
    short, long = (
        Constraint("format", texts(("No", "a" * length)))
        for length in (MAX_ONE_TEXT_CHARS, MAX_ONE_TEXT_CHARS + 1)
    )
    for backend in ("xgrammar", "guidance"):
        assert matcher_of(few, backend) == matcher_of(short, backend) == backend
        assert matcher_of(many, backend) == matcher_of(long, backend) == "machine"


def test_by_default_both_backends_serve_one_engine() -> None:
    isomers = next(i for i in INSTANCES if i.task == "REL-C2")
    assert carrier_of("default") == "xgrammar"
    assert matcher_of(CHOICE, "default") == "xgrammar"
    assert matcher_of(constraint_for(isomers, "syntax"), "default") == "guidance"
    params = structured_outputs_for(constraint_for(isomers, "syntax"), "default")
    assert params is not None
    spec = read_spec(params.grammar or "")
    assert spec is not None
    assert spec["backend"] == "guidance"


@pytest.mark.parametrize("carrier", ["guidance", "xgrammar"])
def test_a_spec_without_our_backend_admits_only_the_trap(
    carrier: str, tokenizer: PreTrainedTokenizerFast
) -> None:
    import llguidance
    from llguidance.hf import from_tokenizer

    grammar = write_spec({"backend": "machine", "constraint": 'é\n"*/'}, carrier)  # type: ignore[arg-type]
    ids = tokenizer.encode(TRAP, add_special_tokens=False)
    if carrier == "guidance":
        reader = llguidance.LLMatcher(from_tokenizer(tokenizer), grammar, log_level=0)
        assert not reader.get_error()
        assert reader.validate_tokens([tokenizer.encode("N")[0]]) == 0
        assert reader.consume_tokens(ids)
        assert reader.is_accepting()
    else:
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
        compiled = xgrammar.GrammarCompiler(info).compile_grammar(grammar)
        matcher = xgrammar.GrammarMatcher(compiled)
        assert all(matcher.accept_token(token_id) for token_id in ids)
        assert matcher.is_completed()
    assert not TAXA.matches(TRAP)


HUGE_TEXTS = texts(tuple(f"{i}" + "x" * 100_000 for i in range(100)))  # 10 MB
HUGE = {
    "format": Constraint("format", HUGE_TEXTS),
    "regex": Constraint("regex", HUGE_TEXTS),
    "json": Constraint("json", HUGE_TEXTS, schema=f'{{"enum":["{"x" * 10_000_000}"]}}'),
    "json that is short as an expression": Constraint(
        "json", Text("x"), schema=f'{{"const":"{"x" * 10_000_000}"}}'
    ),
    "a set": Constraint("set", Subset(tuple(f"{i}" + "x" * 100_000 for i in range(100)), ",")),
    "rules": Constraint("syntax", Rule("r"), (("r", HUGE_TEXTS),)),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", HUGE)
def test_a_constraint_of_10_mb_is_refused_with_a_reason(
    name: str, backend: Backend, tokenizer: PreTrainedTokenizerFast
) -> None:
    problem = compile_check(HUGE[name], backend, tokenizer)
    assert problem is not None
    assert "more than 2,000,000 characters" in problem
    with pytest.raises(UntranslatableError, match="more than 2,000,000 characters"):
        structured_outputs_for(HUGE[name], backend)


# ── What vLLM would ignore, or do behind a constraint ───────────────────────────────────────


@pytest.mark.parametrize("name", sorted(REFUSED_ARGUMENTS))
def test_an_argument_that_goes_past_constraints_is_refused_with_its_reason(name: str) -> None:
    assert name in {field.name for field in dataclasses.fields(EngineArgs)}
    with pytest.raises(ConfigError, match=re.escape(REFUSED_ARGUMENTS[name])):
        check_engine_args({name: "anything"})


@pytest.mark.parametrize("name", sorted(OWN_ARGUMENTS))
def test_an_argument_with_a_setting_of_its_own_is_refused_with_its_place(name: str) -> None:
    assert name in {field.name for field in dataclasses.fields(EngineArgs)}
    with pytest.raises(ConfigError, match=rf"set {re.escape(OWN_ARGUMENTS[name])} instead"):
        check_engine_args({name: "anything"})


@pytest.mark.parametrize(
    "name",
    # What decides which backend, scheduler, sampler or tokenizer a constraint meets.
    [
        "scheduling_policy", "scheduler_cls", "speculative_config", "spec_method",
        "reasoning_parser", "reasoning_parser_plugin", "structured_outputs_config",
        "logits_processors", "generation_config", "override_generation_config",
        "logprobs_mode", "skip_tokenizer_init", "tokenizer_mode", "diffusion_config",
        "watermark_config",
    ],
)  # fmt: skip
def test_nothing_that_vllm_ignores_beside_a_constraint_gets_through(name: str) -> None:
    with pytest.raises(ConfigError):
        check_engine_args({name: "anything"})


@pytest.mark.parametrize("backend", sorted(REFUSED_BACKENDS))
def test_a_backend_that_fails_our_tests_is_refused_with_the_reason(backend: str) -> None:
    settings = {"run": "r", "model": {"path": "m"}, "engine": {"backend": backend}}
    with pytest.raises(ConfigError, match=re.escape(REFUSED_BACKENDS[backend])):
        validate_config(settings, "run.yaml")


def test_outlines_still_errs_on_spaces(tokenizer: PreTrainedTokenizerFast) -> None:
    """Where it does no more, hold it to the table of `tests/constraints` and offer it."""
    outlines_core = pytest.importorskip("outlines_core", reason="vLLM came without it")
    vocabulary = get_outlines_vocabulary(tokenizer).inner
    ids = tokenizer.encode("Yes: 1, 2", add_special_tokens=False)
    listed = separated(texts(("1", "2 a", "2")), ", ", 1, 3)
    constraint = Constraint("regex", Seq((Text("Yes: "), listed)))
    assert constraint.matches("Yes: 1, 2")
    guide = outlines_core.Guide(outlines_core.Index(render_regex(constraint), vocabulary))
    assert not guide.accepts_tokens(ids)


def test_lm_format_enforcer_still_cannot_be_imported() -> None:
    pytest.importorskip("lmformatenforcer", reason="vLLM came without it")
    with pytest.raises(ImportError):
        import lmformatenforcer.integrations.vllm  # noqa: F401


# ── The hook ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def create(tokenizer: PreTrainedTokenizerFast) -> Iterator[Any]:
    """`StructuredOutputManager._create_grammar` with our hook, without an engine."""
    original = StructuredOutputManager._create_grammar  # pyright: ignore[reportPrivateUsage]
    grammar_backend.install()
    grammar_backend.install()
    model = SimpleNamespace(get_vocab_size=lambda: 320, max_model_len=1000, hf_config=None)
    manager = SimpleNamespace(
        vllm_config=SimpleNamespace(
            model_config=model,
            structured_outputs_config=SimpleNamespace(
                backend="xgrammar",
                disable_any_whitespace=True,
                disable_additional_properties=False,
            ),
        ),
        tokenizer=tokenizer,
    )
    requests: list[Request] = []

    def created(
        constraint: Constraint,
        backend: Backend,
        max_tokens: int = 100,
        payload: dict[str, Any] | None = None,
    ) -> Any:
        request = Request(constraint, backend, max_tokens)
        if payload is not None:
            request.structured_output_request.params.grammar = write_spec(payload, "xgrammar")
        requests.append(request)  # as an engine does, keep it while it runs
        grammar: Any = StructuredOutputManager._create_grammar(manager, request)  # type: ignore[arg-type]
        return grammar, request

    yield created
    StructuredOutputManager._create_grammar = original  # type: ignore[method-assign]


class Request:
    """As much of vLLM's request as a grammar sees."""

    def __init__(self, constraint: Constraint, backend: Backend, max_tokens: int) -> None:
        self.request_id = "r"
        self.sampling_params = SamplingParams(
            max_tokens=max_tokens, structured_outputs=structured_outputs_for(constraint, backend)
        )
        self.structured_output_request = StructuredOutputRequest.from_sampling_params(
            self.sampling_params
        )
        self.max_tokens = max_tokens
        self.num_prompt_tokens = 10
        self.num_output_tokens = 0


def texts_admitted(grammar: Any, tokenizer: PreTrainedTokenizerFast) -> set[str]:
    bitmask = torch.full((3, 10), -1, dtype=torch.int32)
    grammar.fill_bitmask(bitmask, 1)
    assert (bitmask[0] == -1).all()
    bits = np.unpackbits(bitmask[1].numpy().view(np.uint8), bitorder="little")
    return {tokenizer.decode([int(token_id)]) for token_id in np.flatnonzero(bits)}


def test_the_hook_masks_tokens_and_keeps_to_the_end(
    create: Any, tokenizer: PreTrainedTokenizerFast
) -> None:
    grammar, _ = create(TAXA, "xgrammar")
    assert texts_admitted(grammar, tokenizer) >= {"N", "Y"}
    ids = tokenizer.encode("Yes: 12, 2", add_special_tokens=False)
    eos = tokenizer.eos_token_id
    assert grammar.validate_tokens([*ids, eos, ids[0]]) == [*ids, eos]
    assert not grammar.accept_tokens("r", [eos])
    assert grammar.accept_tokens("r", ids)
    assert "</s>" in texts_admitted(grammar, tokenizer)
    assert not grammar.accept_tokens("r", tokenizer.encode("2", add_special_tokens=False))
    grammar.rollback(1)
    assert grammar.accept_tokens("r", ids[-1:])
    assert grammar.accept_tokens("r", [eos])
    assert grammar.is_terminated()
    assert grammar.accept_tokens("r", [eos])


def test_tokens_of_a_thought_are_taken_off_what_is_left(
    create: Any, tokenizer: PreTrainedTokenizerFast
) -> None:
    long_or_short = Constraint("set", OneOf((Subset(("no",), ","), Text("yes" * 10))))
    for spent, admits_long in ((0, True), (80, False)):
        grammar, request = create(long_or_short, "guidance", max_tokens=100)
        request.num_output_tokens = spent
        assert ("y" in texts_admitted(grammar, tokenizer)) == admits_long


def test_an_error_of_guidance_is_not_the_end_of_a_reply(
    create: Any, tokenizer: PreTrainedTokenizerFast
) -> None:
    """In error it admits nothing but the end, which for a list of lines is a whole reply."""
    import llguidance

    lines = Constraint("syntax", separated(Rule("r"), "\n", 1, None), (("r", Text("<smiles>")),))
    grammar, _ = create(lines, "guidance")
    ids = tokenizer.encode("<smiles>", add_special_tokens=False)
    assert grammar.accept_tokens("r", ids)
    limits = llguidance.LLParserLimits(max_items_in_row=1)
    given_up = llguidance.LLMatcher(
        grammar.ll_tokenizer, 'start: ("a" | b)*\nb: "x" b?', log_level=0, limits=limits
    )
    given_up.consume_token(tokenizer.encode("x", add_special_tokens=False)[0])
    assert given_up.is_error()
    grammar.ll_matcher = given_up
    assert texts_admitted(grammar, tokenizer) == {"</s>"}
    assert not grammar.accept_tokens("r", [tokenizer.eos_token_id])


def test_requests_with_equal_constraints_share_one(create: Any) -> None:
    first, _ = create(TAXA, "xgrammar")
    second, _ = create(TAXA, "guidance")
    assert first._reader._masks is second._reader._masks


def test_a_grammar_of_guidance_runs_in_an_engine_of_xgrammar(
    create: Any, tokenizer: PreTrainedTokenizerFast
) -> None:
    isomers = next(i for i in INSTANCES if i.task == "REL-C2")
    grammar, _ = create(constraint_for(isomers, "syntax"), "default")
    ids = tokenizer.encode("<smiles>CC(=O)O</smiles>", add_special_tokens=False)
    assert grammar.accept_tokens("r", ids)
    assert texts_admitted(grammar, tokenizer) == {"</s>"}


def test_a_spec_that_is_broken_fails_its_own_request(create: Any) -> None:
    with pytest.raises(ValueError, match="no backend is called 'nope'"):
        create(TAXA, "xgrammar", payload={"backend": "nope"})
    with pytest.raises(ValueError, match="not an encoded constraint"):
        create(TAXA, "xgrammar", payload={"backend": "machine", "constraint": "{}"})
    with pytest.raises(ValueError, match=r".+"):
        create(
            TAXA,
            "xgrammar",
            payload={"backend": "guidance", "type": "GRAMMAR", "text": "start: nope"},
        )
