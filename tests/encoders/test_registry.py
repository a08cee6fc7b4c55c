import subprocess
import sys
from pathlib import Path

import pytest

from compatstore import encoders
from compatstore.encoders import Function, from_spec
from compatstore.errors import InvalidInput, NotFound

SOURCE = """
from compatstore.encoders import Function
encoder = Function(lambda texts: [[len(text)] for text in texts], 1, fingerprint="length")
number = 3
class Length(Function):
    def __init__(self):
        super().__init__(lambda texts: [[len(text)] for text in texts], 1, fingerprint="length")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = "an_encoder_of_the_users"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


def test_python_specs_take_an_encoder_or_a_class_of_them(module: str) -> None:
    for attribute in ("encoder", "Length"):
        encoder = from_spec(f"python:{module}:{attribute}")
        assert isinstance(encoder, Function)
        assert encoder.encode(["abc"]).tolist() == [[3]]


def test_python_specs_that_lead_nowhere_are_refused(module: str) -> None:
    for path in ("no_such_module:encoder", f"{module}:missing", module, ":x"):
        with pytest.raises(NotFound, match=r"package\.module:attribute"):
            from_spec(f"python:{path}")
    for path in (f"{module}:number", "builtins:str", "builtins:print"):
        with pytest.raises(InvalidInput, match="an encoder"):
            from_spec(f"python:{path}")


@pytest.mark.parametrize("spec", ["", "resnet18", "keras:vgg", "timm:"])
def test_unknown_specs_list_the_known_kinds(spec: str) -> None:
    with pytest.raises(NotFound, match="timm, torchvision, network, precomputed, python"):
        from_spec(spec)


def test_every_public_name_can_be_reached() -> None:
    assert all(getattr(encoders, name) is not None for name in encoders.__all__)
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = encoders.Nonsense


def test_importing_encoders_loads_nothing_heavy() -> None:
    program = "import compatstore.encoders, compatstore.encoders.network, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "timm", "torchvision", "sklearn"} & set(loaded)


MISSING = """
import sys
for name in ("sentence_transformers", "transformers", "fastembed", "model2vec", "open_clip"):
    sys.modules[name] = None
from compatstore.encoders import from_spec
try:
    from_spec(sys.argv[1])
except ImportError as error:
    print(error)
"""


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sentence-transformers", "transformers", "fastembed", "model2vec", "open_clip"])
def test_a_missing_library_is_named_with_its_extra(kind: str, tmp_path: Path) -> None:
    place, extra = ("ViT-B-32?weights=openai", "clip") if kind == "open_clip" else (tmp_path, "text")
    program = [sys.executable, "-c", MISSING, f"{kind}:{place}"]
    message = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    assert f"this needs {kind.replace('_', '-')}" in message
    assert f'pip install "compatstore[{extra}]"' in message
