"""A lint for tenancy: a public function of db/ that touches a table of a tenant's must be told ``tenant_id``.

It reads source text alone. A function touches a table when it names it, in SQLAlchemy or in SQL text, or when it calls
a function or uses a constant of its module that does. Calls into other modules are those modules' business.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Unscoped:
    """One public function that reaches tenants' rows without being told whose."""

    name: str
    """`function` or `Class.method`."""
    tables: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A name of a module and what the text behind it mentions."""

    name: str
    mentions: frozenset[str]
    """Bare names and attributes: calls of functions and methods, uses of constants."""
    tables: frozenset[str]
    sql: str
    required: frozenset[str] | None
    """Parameters that must be given; None for what is not a function."""

    @property
    def is_public_function(self) -> bool:
        return self.required is not None and not any(part.startswith("_") for part in self.name.split("."))


def _required_parameters(node: FunctionNode) -> frozenset[str]:
    """Return the parameters that a caller must give, and may not give None for: a filter left out is no filter."""
    given = node.args
    positional = (*given.posonlyargs, *given.args)
    required = positional[: len(positional) - len(given.defaults)]
    named = [each for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    return frozenset(each.arg for each in (*required, *named) if not _may_be_none(each.annotation))


def _may_be_none(annotation: ast.expr | None) -> bool:
    return annotation is not None and re.search(r"\bNone\b|\bOptional\b", ast.unparse(annotation)) is not None


def _tables_by_local_name(module: ast.Module) -> dict[str, str]:
    """Return the tables a module imports, under the names it gives them."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == "tables"
        for alias in node.names
    }


def _mentioned_tables(node: ast.AST, imported: dict[str, str]) -> Iterator[str]:
    for each in ast.walk(node):
        match each:
            case ast.Name(id=name) if name in imported:
                yield imported[name]
            case ast.Attribute(value=ast.Name(id="tables"), attr=name):
                yield name


def _define(name: str, node: ast.AST, imported: dict[str, str]) -> Definition:
    body = list(ast.walk(node))
    docstrings = {id(each.value) for each in body if isinstance(each, ast.Expr)}
    texts = [each for each in body if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return Definition(
        name=name,
        mentions=frozenset(
            [each.id for each in body if isinstance(each, ast.Name)]
            + [each.attr for each in body if isinstance(each, ast.Attribute)]
        ),
        tables=frozenset(_mentioned_tables(node, imported)),
        sql=" ".join(str(each.value) for each in texts if id(each) not in docstrings),
        required=_required_parameters(node) if isinstance(node, FunctionNode) else None,
    )


def _definitions(module: ast.Module) -> Iterator[Definition]:
    imported = _tables_by_local_name(module)
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield _define(node.name, node, imported)
            case ast.ClassDef():
                for inner in node.body:
                    if isinstance(inner, FunctionNode):
                        yield _define(f"{node.name}.{inner.name}", inner, imported)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield _define(name, node, imported)


def _named_in_sql(table: str, sql: str) -> bool:
    return re.search(rf"\b(from|into|update|join)\s+{table}\b", sql, re.IGNORECASE) is not None


def unscoped_functions(source: str, tenant_tables: frozenset[str]) -> list[Unscoped]:
    """Return the public functions of a module that touch a tenant's table and need no ``tenant_id``, in order."""
    definitions = list(_definitions(ast.parse(source)))
    touched: dict[str, frozenset[str]] = {
        each.name: frozenset(table for table in tenant_tables if table in each.tables or _named_in_sql(table, each.sql))
        for each in definitions
    }
    changed = True
    while changed:
        changed = False
        for each in definitions:
            reached = touched[each.name].union(
                *(touched[other.name] for other in definitions if other.name.rsplit(".")[-1] in each.mentions)
            )
            changed |= reached != touched[each.name]
            touched[each.name] = reached
    return [
        Unscoped(name=each.name, tables=touched[each.name])
        for each in definitions
        if each.is_public_function and touched[each.name] and "tenant_id" not in (each.required or frozenset())
    ]
