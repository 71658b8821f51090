"""Who may import whom: an edge install never needs the cloud, nor torch, and the product never needs the harness."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("proto", "shared", "edge", "cloud", "harness")
FORBIDDEN = {
    "shared": ("outrider.edge", "outrider.cloud", "outrider.harness"),
    "edge": ("outrider.cloud", "outrider.harness", "torch", "transformers", "accelerate"),
    "cloud": ("outrider.edge", "outrider.harness"),
    "proto": ("outrider.shared", "outrider.edge", "outrider.cloud", "outrider.harness"),
}


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder / "outrider").rglob("*.py"))
    assert found, f"no source below {folder}"
    return found


def imported_modules(path: Path) -> Iterator[str]:
    """Dotted names of all that `path` imports anywhere in it, inside functions too."""
    package = list(path.relative_to(ROOT).parts[1:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in {"import_module", "__import__"}:
            yield from (arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str))


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_no_portion_imports_what_it_must_not(folder: str) -> None:
    broken = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources(folder)
        for module in imported_modules(path)
        for package in FORBIDDEN[folder]
        if is_within(module, package)
    ]
    assert not broken, "\n".join(broken)


def test_the_package_is_a_namespace_without_an_init() -> None:
    assert [str(path) for folder in FOLDERS for path in (ROOT / folder).glob("outrider/__init__.py*")] == []


def test_each_portion_stays_in_its_own_folder() -> None:
    for folder in FOLDERS:
        portions = {path.name for path in (ROOT / folder / "outrider").iterdir() if path.name != "__pycache__"}
        assert portions == {"v1" if folder == "proto" else folder}


@pytest.mark.parametrize(
    "module",
    ["outrider.edge.agent", "outrider.edge.commands.ask", "outrider.edge.commands.chat", "outrider.shared.cli"],
)
def test_an_edge_loads_neither_cloud_nor_torch(module: str) -> None:
    code = f"import sys, {module}; print('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    loaded = run.stdout.split()
    assert module in loaded
    for package in ("outrider.cloud", "outrider.harness", "torch", "transformers"):
        assert [name for name in loaded if is_within(name, package)] == []


def test_imports_are_found_wherever_they_hide() -> None:
    """The search itself: it would be easy to find nothing."""
    path = ROOT / "edge" / "outrider" / "edge" / "link.py"
    assert "outrider.v1.verifier_pb2" in set(imported_modules(path))
    inside = ROOT / "edge" / "outrider" / "edge" / "tokenizer.py"
    assert "outrider.shared.llama.runtime" in set(imported_modules(inside)), "an import inside a function"
