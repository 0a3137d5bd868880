"""What vLLM is told of a constraint, and who masks its tokens in the end."""

from __future__ import annotations

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
    from vllm.sampling_params import SamplingParams
    from vllm.v1.structured_output import StructuredOutputManager
    from vllm.v1.structured_output.request import StructuredOutputRequest

from rel_batch import constraint_for, read_instances
from rel_batch.config import Backend
from rel_batch.constraints import Constraint, OneOf, Seq, Subset, Text, texts
from rel_batch.engine.grammar_spec import TRAP, read_spec, write_spec
from rel_batch.engine.structured_outputs import (
    carrier_of,
    compile_check,
    matcher_of,
    structured_outputs_for,
)
from rel_batch.tasks import TASKS, task_for

BACKENDS: tuple[Backend, ...] = get_args(Backend)
INSTANCES = list({i.task: i for i in read_instances("bundled")}.values())
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from rel_batch.engine import grammar_backend

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
    params = structured_outputs_for(CHOICE, "guidance")
    assert params is not None
    assert read_spec(params.grammar or "") is None


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


def test_what_does_not_compile_is_refused_with_a_reason(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    huge = Constraint("format", texts(tuple(f"{i}" + "x" * 100_000 for i in range(100))))
    for backend in BACKENDS:
        assert "more than 2,000,000 characters" in (compile_check(huge, backend, tokenizer) or "")


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
                disable_any_whitespace=True, disable_additional_properties=False
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
