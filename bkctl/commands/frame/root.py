"""The root of the typer tree: nouns loaded when used, and the one place where errors become exit codes."""

from __future__ import annotations

import enum
import errno
import importlib
import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
import typer.completion
import typer.core
import typer.main
from typer._click.exceptions import BadOptionUsage, NoArgsIsHelpError, NoSuchOption, UsageError

from bkctl.commands.frame import value_completion
from bkctl.commands.frame.coercion import convert_plain_values_directly
from bkctl.commands.frame.contexts import in_context, take_context
from bkctl.commands.frame.damaged_index import rebuild_after
from bkctl.commands.frame.help_text import break_at_blanks, show_examples_whole
from bkctl.commands.frame.log_output import only_json_lines
from bkctl.commands.frame.metavars import show_metavars_alone
from bkctl.commands.frame.nouns import NOUNS, READER_GONE, WHAT_IT_IS, Noun, top_level_help, version_line
from bkctl.commands.frame.old_names import as_typed, hide_old_names
from bkctl.commands.frame.quiet import quietly
from bkctl.commands.frame.shell_commands import ADVICE, GUESSED_COMMANDS, SHELL_COMMANDS
from bkctl.commands.frame.terminal_text import escaped, escaping
from bkctl.errors import LIMITS, BkctlError, CorruptionError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer._click import Command, Context, HelpFormatter

#: The message about a verb that does not exist, with those that are like it.
_NO_VERB = re.compile(r"No such command '([^']+)'(?:[.] Did you mean (.+)[?])?")
#: How much of an option has to be right before it is guessed.
_ALIKE = 0.7
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_COMPLETION_FLAGS = ("--install-completion", "--show-completion")


class Shell(enum.StrEnum):
    """Shells that completion is offered for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class RootGroup(typer.core.TyperGroup):
    """``bkctl`` itself: finds nouns in the table, imports their module at first use, maps errors."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(NOUNS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        noun = NOUNS.get(cmd_name)
        if noun is not None:
            self.add_command(load(noun))
            return self.commands[cmd_name]
        if not ctx.resilient_parsing and not cmd_name.startswith("-"):
            ctx.fail(f"No such command {cmd_name!r}.{_suggestion(cmd_name)}")
        return None

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        formatter.write(top_level_help())

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        args = list(args)
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        elif args[1:2] == ["help"] and (noun := NOUNS.get(args[0])) is not None and noun.verbs:
            args = [args[0], *args[2:], "--help"]
        if len(args) == 1 and args[0] in _COMPLETION_FLAGS:
            args.append(_shell_in_use())
        end = args.index("--") if "--" in args else len(args)
        for option in ("--debug", "--quiet"):
            ctx.meta[f"bkctl.{option}"] = option in args[:end]
        line = [word for word in args[:end] if word not in ("--debug", "--quiet")]
        ctx.meta["bkctl.context"], line = take_context(line)
        args = line + args[end:]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Context) -> Any:
        try:
            words = (*ctx._protected_args, *ctx.args)
            with quietly(ctx.meta["bkctl.--quiet"]), in_context(ctx.meta["bkctl.context"], words):
                answer = super().invoke(ctx)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, typer.TyperException):
            raise  # typer's own: an exit code that a command chose, or wrong usage
        except BrokenPipeError:
            raise typer.Exit(READER_GONE) from None
        except KeyboardInterrupt:
            _say("interrupted")
            raise typer.Exit(130) from None
        except Exception as error:
            if ctx.meta["bkctl.--debug"]:
                traceback.print_exc()
            _say(describe(error, words))
            raise typer.Exit(_exit_code(error, words)) from None
        return answer

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *rest: Any, **extra: Any
    ) -> Any:
        if "_BKCTL_COMPLETE" in os.environ:
            typer.completion.get_completion_inspect_parameters()  # registers typer's shells
        try:
            code = super().main(args, "bkctl", *rest, **{**extra, "standalone_mode": False})
        except typer.TyperException as error:
            code = _wrong_usage(error, args or ())
        except BkctlError as error:  # of the line itself, before a command was found
            _say(describe(error))
            code = error.exit_code
        except typer.Abort:
            _say("interrupted")
            code = 130
        sys.exit(code if isinstance(code, int) else 0)


def _exit_code(error: Exception, words: Sequence[str]) -> int:
    """Return the exit code for an error that ended a command.

    Damage is what a command that reads was looking for (1). One that writes and met damage has not done what
    it was asked to (7): with 1 it says that it did, and that something was lost.
    """
    if not isinstance(error, BkctlError) or (isinstance(error, CorruptionError) and _only_writes(words)):
        return StorageError.exit_code
    return error.exit_code


def _only_writes(words: Sequence[str]) -> bool:
    """Return whether the command that a line names is there to change something, by its safety class."""
    classes = (getattr(_named(words), "help", "") or "").partition(".")[0]
    return "[writes]" in classes and "[reads]" not in classes


def _named(words: Sequence[str]) -> Any:
    """Return the command that a line names, or its noun where it has no verb; None without any."""
    noun = NOUNS.get(words[0]) if words else None
    if noun is None:
        return None
    found: Any = load(noun)
    if not noun.verbs:
        return found
    verbs = (getattr(found, "commands", {}).get(word) for word in words[1:])
    return next((verb for verb in verbs if verb is not None), None)


def _values(option: str, words: Sequence[str]) -> list[str]:
    """Return the values that an option of the command in a line can have, where they are a closed list."""
    for each in getattr(_named(words), "params", ()):
        if option in each.opts:
            kind = getattr(getattr(each, "type_descriptor", None), "annotation", None)
            kinds = (
                one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, enum.Enum)
            )
            return [str(value.value) for one in kinds for value in one]
    return []


def load(noun: Noun) -> Command:
    """Import a noun's module and build its commands."""
    app: typer.Typer = importlib.import_module(noun.module).app
    command = typer.main.get_group(app) if noun.verbs else typer.main.get_command(app)
    command.name = noun.name
    if noun.verbs:
        command.help = f"{noun.safety} {command.help or noun.summary}"
    hide_old_names(command)
    show_metavars_alone(command)
    show_examples_whole(command)
    for verb in getattr(command, "commands", {}).values():
        verb.short_help = summary_of(verb)
    return command


def summary_of(command: Any) -> str:
    """Return the first sentence of a command's help, without its safety class, which its own page shows."""
    text = " ".join((command.help or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", re.sub(r"^(\[[a-z]+\] )+", "", text), maxsplit=1)[0]


def _suggestion(word: str) -> str:
    """Return what may have been meant by a first word that is no command, as a sentence, or nothing."""
    if ours := SHELL_COMMANDS.get(word):
        return f" In bookkeeper's shell it is one; here it is {' or '.join(map(repr, ours))}."
    if word in SHELL_COMMANDS:
        return " It is one of bookkeeper's shell; docs/coming-from-bookkeeper-shell.md says what to do here."
    if meant_line := GUESSED_COMMANDS.get(word):
        return _meant([meant_line])
    if advice := ADVICE.get(word):
        return f" {advice}."
    import difflib

    nouns = (load(noun) for noun in NOUNS.values() if noun.verbs)
    verbs = [f"{noun.name} {word}" for noun in nouns if word in getattr(noun, "commands", {})]
    meant = verbs or difflib.get_close_matches(word, NOUNS)
    return _meant(meant)


def _meant(words: Sequence[str]) -> str:
    """Return the question whether one of these was meant, as a sentence, or nothing."""
    if not words:
        return ""
    *others, last = map(repr, words)
    choice = f"{', '.join(others)} or {last}" if others else last
    return f" Did you mean {choice}?"


def _wrong_usage(error: Any, words: Sequence[str]) -> int:
    """Say what is wrong with a command line, in the form of every other error; return the exit code."""
    context = error.ctx if isinstance(error, UsageError) else None
    if isinstance(error, NoArgsIsHelpError):
        error.show()
        return int(error.exit_code)
    text = as_typed(error.format_message().rstrip("."), words)
    if isinstance(error, BadOptionUsage) and (values := _values(error.option_name, words)):
        text += f", one of {', '.join(values)}"
    if isinstance(error, NoSuchOption):
        alike = _close(error.option_name, error.possibilities or ())
        text = f"{error.message}{'.' if alike else ''}{_meant(alike)}"
    if context is not None and (guess := _NO_VERB.fullmatch(text)) is not None:
        text = _about_verb(guess[1], guess[2] or "", context.command_path.partition(" ")[2])
    _say(f"error: {text[:1].lower()}{text[1:]}" if text[1:2].islower() else f"error: {text}")
    if context is not None:
        _say(f"'{context.command_path} --help' shows what there is")
    return int(error.exit_code)


def _close(word: str, possible: Sequence[str]) -> list[str]:
    """Return those of ``possible`` that may well be meant: --conf is not for --columns."""
    import difflib

    return difflib.get_close_matches(word, possible, cutoff=_ALIKE)


def _about_verb(verb: str, alike: str, noun: str) -> str:
    """Return what is said of a verb that its noun does not have; ``alike`` are in quotation marks."""
    line = f"{noun} {verb}"
    if advice := ADVICE.get(line):
        meant = f" {advice}"
    elif command := GUESSED_COMMANDS.get(line):
        meant = _meant([command])
    else:
        meant = _meant(re.findall(r"'([^']+)'", alike))
    return f"No such command '{verb}'{'.' if meant else ''}{meant}"


def describe(error: Exception, words: Sequence[str] = ()) -> str:
    """Return one line for people: what failed, and what to do next where that is not plain.

    ``words`` are those of the line, whose names of options are used.
    """
    if isinstance(error, BkctlError):
        then = rebuild_after(error) if isinstance(error, CorruptionError) else ""
        return f"error: {as_typed(str(error), words)}{then}"
    if isinstance(error, OSError) and error.strerror:
        # Errors of files have their names by now: what is full without one is the output.
        place = error.filename or ("the output" if error.errno in _FULL else "")
        return f"error: {place}{': ' if place else ''}{error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or (type(error) is RuntimeError and "start new thread" in text):
        return f"error: the system gives no more memory or threads{f' ({text})' if text else ''}; {LIMITS}"
    return (
        f"error: unexpected {type(error).__name__}{f': {text}' if text else ''} "
        "(a bug in bkctl; run again with --debug for the traceback)"
    )


def run(arguments: list[str]) -> int:
    """Run one command line in this process and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Names of files may hold bytes that the terminal's encoding cannot show.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    own = sys.stderr
    # Errors and logs repeat what files, metadata and other programs say.
    sys.stderr = escaping(own)
    try:
        with only_json_lines(arguments):
            typer.main.get_command(app)(arguments)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
    finally:
        sys.stderr = own
    return 0


def _say(line: str) -> None:
    # One line, whatever is in it: a line end in an answer must not look like a message of this program's own.
    sys.stderr.write(f"bkctl: {escaped(line)}\n")


def _shell_in_use() -> str:
    return os.path.basename(os.environ.get("SHELL", ""))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit


convert_plain_values_directly()
break_at_blanks()

app = typer.Typer(
    name="bkctl",
    cls=RootGroup,
    help=WHAT_IT_IS,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    suggest_commands=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
    context: Annotated[
        str | None,
        typer.Option(
            "-c",
            "--context",
            metavar="NAME",
            help="Run in this context, or none.",
            autocompletion=value_completion.contexts,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show errors only.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version),
    ] = False,
    install_completion: Annotated[
        Shell | None,
        typer.Option(
            help="Install completion for a shell.", is_eager=True, callback=typer.completion.install_callback
        ),
    ] = None,
    show_completion: Annotated[
        Shell | None,
        typer.Option(
            help="Print the completion script of a shell.",
            is_eager=True,
            callback=typer.completion.show_callback,
        ),
    ] = None,
) -> None:
    """Declare the global options; their work is done in RootGroup and in the callbacks."""
