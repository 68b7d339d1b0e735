"""Completion in shells at a terminal."""

import os
import subprocess

from terminal import Terminal


def zsh(build, work):
    """zsh completes words of the tree"""
    script = subprocess.run([build / "uroce", "completion", "zsh"], check=True,
                            capture_output=True, text=True).stdout
    (work / "_uroce").write_text(script)
    (work / ".zshrc").write_text(
        "PS1='zsh> '\nfpath=($ZDOTDIR $fpath)\nautoload -U compinit\ncompinit -u -D\n")
    path = f"{build}:{os.environ['PATH']}"
    with Terminal(work, "zsh", "-i", ZDOTDIR=str(work), PATH=path) as terminal:
        terminal.says("zsh>")
        terminal.types("uroce show port sta", "Tab")
        terminal.says("zsh> uroce show port stats")
        terminal.types("C-u", "uroce compl", "Tab", "ba", "Tab")
        terminal.says("zsh> uroce completion bash")


SESSIONS = (zsh,)
