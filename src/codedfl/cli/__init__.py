"""The command line."""

from __future__ import annotations

import io
import os
import sys

from codedfl.errors import InputError, InputListError

LONGEST_SENTENCE = 360
"""Maximum length of an error message; the middle of a longer one is cut."""


def main() -> None:
    """Run the command line; errors end in one sentence and exit code 2, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # characters that the terminal's encoding lacks are shown as escapes
            stream.reconfigure(errors="backslashreplace")
    try:
        from codedfl.cli.app import app

        code = app(standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has closed the pipe, and the interpreter's final flush would fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        if sentence:
            lines = sentence.splitlines() if isinstance(error, InputListError) else [sentence]
            print(f"codedfl: {chr(10).join(map(_shortened, lines))}", file=sys.stderr)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _sentence(error: Exception) -> str | None:
    """Return one sentence about what went wrong; None for a defect of the program, which needs its traceback."""
    import typer

    from codedfl.plugins import blamed

    error = blamed(error) or error
    match error:
        case InputError():
            return str(error)
        case MemoryError():
            return f"out of memory ({error}): lower features.dimension or coding.coded_samples.".replace(" ()", "")
        case OSError(filename=str() as path, strerror=reason):
            return f"{path} cannot be read or written ({reason}): give another path."
        case OSError():
            return f"the operating system refused ({error}): try again, or give another path."
        case RecursionError():
            return "the input is nested too deeply: simplify it."
        case ArithmeticError():
            return f"a number is too extreme to compute with ({error}): give values nearer to 1."
        case UnicodeError():
            return f"text could not be read or written ({error}): use UTF-8."
    if isinstance(error, typer.BadParameter.__bases__):  # misused options: click's UsageError, or typer's copy of it
        context, message = getattr(error, "ctx", None), _message(error)
        return f"{message} See {context.command_path} --help." if message and context else message
    return None


def _message(error: Exception) -> str:
    """Return what is wrong as a sentence; nothing if help has been shown instead."""
    text = str(getattr(error, "format_message", error.__str__)())
    return text if text.endswith((".", "?")) or not text else f"{text}."


def _shortened(text: str) -> str:
    """Return a text on one line, with the middle of a very long one cut."""
    line = " ".join(text.split())
    if len(line) <= LONGEST_SENTENCE:
        return line
    return f"{line[: LONGEST_SENTENCE - 125]} ... {line[-120:]}"
