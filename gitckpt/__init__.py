"""Save state, files and commit of a run as checkpoints in refs of the repository.

    from gitckpt import Run, Store

    with Store.open() as store:
        saved = store.save("plan-complete", {"step": 3})
        print(store.read(saved.id).state)

    with Store.open() as store, Run.start(store, "add-login") as run:
        notes = run.phase("research", research, inputs={"question": "how?"})

`__init__.pyi` lists the public names. Each is imported at its first use: the hook imports this
package, and must start fast.
"""

__version__ = "0.4.0"

_MODULES: dict[str, str] = {}  # public name -> its module; empty until the first use


def _modules_by_name() -> dict[str, str]:
    if not _MODULES:
        loader = __spec__.loader  # also one that reads from a zip file
        stub = loader.get_data(f"{__path__[0]}/__init__.pyi").decode()
        lines = [line.split() for line in stub.split("\n") if line.startswith("from gitckpt.")]
        _MODULES.update({name: module for _, module, _, name, *_ in lines})
    return _MODULES


def __getattr__(name: str) -> object:
    """Import a public name from its module at its first use."""
    if name == "__all__":
        return tuple(_modules_by_name())
    if name not in _modules_by_name():
        raise AttributeError(f"module 'gitckpt' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_modules_by_name()[name]), name)


def __dir__() -> list[str]:
    return sorted(_modules_by_name())
