"""Reads from the code which stages there are: what is named where something passes the seam.

A stage is a literal. Whoever passes one on has a parameter ``stage``; whoever begins one writes it down.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src/slackwater"

_TRANSACTIONS: Final = frozenset({"transaction", "driver_transaction"})
_DATABASES: Final = frozenset({"db", "_db"})
_FILES: Final = {
    "blobs/staging.py": "below the seam: how a local object gets its name",
    "cli/profile.py": "the client's own profile",
    "cli/people_results.py": "a customer's own download",
    "embedded/demo_model.py": "what `engine install` unpacks",
    "embedded/engine_environment.py": "the same",
    "embedded/engine_recipe.py": "the same",
    "embedded/model_from_gguf.py": "the same",
    "embedded/postgres.py": "the embedded server's own folder",
    "embedded/postgres_files.py": "the same",
    "flow/backup_folder.py": "a backup's own folder, beside the store",
}
"""Modules that may name or write files whole, and why: nothing of a batch is in them."""
_FILE_CALLS: Final = frozenset({"os.replace", "os.rename", "os.link", "shutil.move", "shutil.copyfile"})
_PATH_CALLS: Final = frozenset({"write_bytes", "write_text", "rename", "hardlink_to"})
_RAW_DATABASE: Final = {
    "db/session.py": "the seam itself",
    "db/hot.py": "below the seam: the connections that Database hands out",
    "db/election.py": "a lock that lives with its session, and nothing that outlives it",
    "db/snapshot.py": "a backup reads only; a restore fills an empty database in one transaction, while nobody runs",
    "db/sweep_hold.py": "a lock that lives with its session, and nothing that outlives it",
    "db/migrate.py": "before the service runs; each migration is one transaction of alembic",
    "embedded/postgres.py": "the server's own readiness",
}
"""Modules that may reach PostgreSQL past Database, and why."""
_RAW_CALLS: Final = frozenset({"create_engine", "create_async_engine", "AsyncConnection.connect", "psycopg.connect"})
_OBJECTS: Final = {
    "blobs/s3.py": "below the seam: the backend",
    "blobs/s3_writer.py": "below the seam: the backend's writer",
    "blobs/bucket.py": "the bucket itself, before the service runs",
    "blobs/abort_uploads.py": "half-made uploads of the dead, which are no objects",
}
"""Modules that may change a bucket past the store, and why."""
_OBJECT_CALL: Final = re.compile(
    r"obstore\.(put|delete|copy|rename)\w*"
    r"|.*\.((put|delete|copy)_objects?|(create|put|delete)_bucket\w*|upload_part\w*|\w+_multipart_upload|upload_file\w*)"
)
_BACKENDS: Final = frozenset({"LocalFolder", "S3Bucket"})


def stages_of(folder: Path = SOURCE) -> dict[str, set[str]]:
    """Return every stage, with the modules that name it. Raises SyntaxError for one that is no literal."""
    found: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        module = str(path.relative_to(folder))
        for stage in stages_in(path.read_text(), module):
            found.setdefault(stage, set()).add(module)
    return found


def stages_in(source: str, module: str) -> Iterator[str]:
    """Yield the stages that one module names."""
    tree = ast.parse(source)
    passed_on = _functions_with_stage(tree)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        argument = _stage_argument(call, passed_on)
        if argument is None or ast.unparse(argument) in {"stage", "self._stage"}:
            continue
        match argument:
            case ast.Constant(value=str(stage)):
                yield stage
            case _:
                raise SyntaxError(f"{module}:{call.lineno}: a stage is a literal, so that it can be found")


def _functions_with_stage(tree: ast.Module) -> dict[str, int]:
    """Return the module's own functions that pass a stage on, and the place of that argument."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [argument for argument in node.args.args if argument.arg not in {"self", "cls"}]
            for place, argument in enumerate(arguments):
                if argument.arg == "stage" and argument.annotation and ast.unparse(argument.annotation) == "str":
                    found[node.name] = place
    return found


def _stage_argument(call: ast.Call, passed_on: dict[str, int]) -> ast.expr | None:
    """Return what a call gives as a stage; None where it gives none."""
    function = call.func
    for keyword in call.keywords:
        if keyword.arg == "stage" and not ast.unparse(function).startswith("_LOG."):
            return keyword.value
    if isinstance(function, ast.Name):
        place = passed_on.get(function.id)
        return call.args[place] if place is not None and place < len(call.args) else None
    if not isinstance(function, ast.Attribute) or not call.args:
        return None
    if function.attr in _TRANSACTIONS and _last_name(function.value) in _DATABASES:
        return call.args[0]
    if function.attr == "fetch":
        begins = isinstance(call.args[0], ast.Constant) and ast.unparse(function.value) == "self"
        if begins or _last_name(function.value) in _DATABASES:
            return call.args[0]
        if _last_name(call.args[0]) in _DATABASES:  # a compiled statement is handed the database
            return call.args[1]
    return None


def _last_name(node: ast.expr) -> str:
    """Return ``db`` of ``self.db``, and of ``db``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def detours(source: str, module: str) -> list[str]:
    """Say where a module writes to PostgreSQL or to the store past the seam."""
    tree = ast.parse(source)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        short = name.rpartition(".")[2]
        if module not in _RAW_DATABASE and any(name == raw or name.endswith("." + raw) for raw in _RAW_CALLS):
            found.append(f"{module}:{node.lineno}: a connection past Database: {name}")
        if module not in _FILES and (name in _FILE_CALLS or ("." in name and short in _PATH_CALLS)):
            found.append(f"{module}:{node.lineno}: a file that no seam hears of: {name}")
        if module.startswith("blobs/") and module not in _OBJECTS and _OBJECT_CALL.fullmatch(name):
            found.append(f"{module}:{node.lineno}: an object that no seam hears of: {name}")
        if short in _BACKENDS and module != "blobs/store.py":
            found.append(f"{module}:{node.lineno}: a store without its seam: {name}")
        if (
            name.startswith("self._backend.")
            and short in {"put", "join", "delete", "writer"}
            and not _seamed(tree, node)
        ):
            found.append(f"{module}:{node.lineno}: a change that the seam does not hear of: {name}")
    return found + _executes(tree, module)


def _executes(tree: ast.Module, module: str) -> list[str]:
    """Say where a statement runs on a connection that no transaction of the seam has given."""
    if module in _RAW_DATABASE:
        return []
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        for block in (node for node in ast.walk(function) if isinstance(node, ast.With | ast.AsyncWith)):
            given |= {
                item.optional_vars.id
                for item in block.items
                if isinstance(item.optional_vars, ast.Name) and _opens_transaction(item.context_expr)
            }
        found += [
            f"{module}:{call.lineno}: a statement outside a transaction of the seam: {ast.unparse(call.func)}"
            for call in ast.walk(function)
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in {"execute", "executemany", "copy"}
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id not in given
        ]
    return found


def _opens_transaction(expression: ast.expr) -> bool:
    return (
        isinstance(expression, ast.Call)
        and isinstance(expression.func, ast.Attribute)
        and expression.func.attr in _TRANSACTIONS
    )


def _seamed(tree: ast.Module, call: ast.Call) -> bool:
    """Tell whether a change of the backend stands between the two halves of the seam."""
    for node in ast.walk(tree):
        inside = isinstance(node, ast.AsyncWith) and any(
            ast.unparse(item.context_expr).startswith("self._watch.change(") for item in node.items
        )
        handed = isinstance(node, ast.Call) and ast.unparse(node.func) == "SeamedWriter"
        if (inside or handed) and any(below is call for below in ast.walk(node)):
            return True
    return False


def allowances() -> set[str]:
    """Return the modules that may go past the seam."""
    return {*_RAW_DATABASE, *_FILES, *_OBJECTS}
