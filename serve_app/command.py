"""The `iop-edge` command."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from deployments import providers
from serve_app import config, local_run
from serve_app.config import Settings
from serve_app.errors import ConfigError
from serve_app.serve_flags import serve_flags

_ROOT = Path(__file__).parents[1]
_SCHEMA = Path("configs/edge.schema.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; give the exit code: 0 well, 1 failed, 2 the configuration is at fault."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.act(arguments))
    except ConfigError as error:
        path = getattr(arguments, "config", None)
        # A file that cannot be read is named by its fault already.
        faults = [fault.removeprefix(f"{path}: ") for fault in error.faults]
        sys.stderr.writelines(f"iop-edge: {path}: {fault}\n" for fault in faults)
        return 2
    except local_run.CannotRunError as error:
        sys.stderr.write(f"iop-edge: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="iop-edge", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="serve a configuration on this machine until Ctrl-C")
    run.add_argument("--config", type=Path, default=Path("configs/edge.yaml"))
    run.add_argument("--serve-config", type=Path, default=_ROOT / "configs/serve_config.yaml")
    run.add_argument("--host", default="127.0.0.1", help="0.0.0.0 for every interface")
    run.add_argument("--port", type=_port, default=8000)
    run.set_defaults(act=_run)

    check = commands.add_parser("check", help="check an edge.yaml and tell every fault in it")
    check.add_argument("config", type=Path)
    check.set_defaults(act=_check)

    schema = commands.add_parser("schema", help="write the JSON schema of edge.yaml")
    schema.add_argument("--output", type=Path, default=_SCHEMA)
    schema.add_argument("--check", action="store_true", help="only tell whether it is up to date")
    schema.set_defaults(act=_schema)

    env = commands.add_parser("env", help="print what to export before Ray starts on a node")
    env.set_defaults(act=_env)
    return parser


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is a number from 1 to 65535")
    return port


def _read(path: Path) -> Settings:
    return config.read(path, types=providers.names())


def _run(arguments: argparse.Namespace) -> int:
    settings = _read(arguments.config)
    options = local_run.Options(
        config=arguments.config,
        serve_config=arguments.serve_config,
        host=arguments.host,
        port=arguments.port,
    )
    local_run.run(options, settings)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    settings = _read(arguments.config)
    models, count = len(settings.models), len(settings.providers)
    routes = len(settings.openai.model_routes)
    warnings = settings.warnings(providers.always_thinking())
    sys.stderr.writelines(f"iop-edge: {arguments.config}: warning: {w}\n" for w in warnings)
    sys.stdout.write(f"{arguments.config}: {count} providers, {models} models, {routes} routes\n")
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    text = (
        json.dumps(config.json_schema(types=providers.names()), indent=2, ensure_ascii=False) + "\n"
    )
    path: Path = arguments.output
    if not arguments.check:
        path.write_text(text, encoding="utf-8")
        return 0
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"iop-edge: {path} is out of date; run 'iop-edge schema'\n")
    return 1


def _env(arguments: argparse.Namespace) -> int:
    del arguments
    for name, value in serve_flags().items():
        sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
