"""The prompt of a device of its own: TAB, `?`, mistakes, history, Ctrl-R, pager."""

import re

from terminal import Terminal

OWN = ("--no-huge", "-m", "64", "--vdev=net_null0,no-rx=1", "--vdev=net_null1,no-rx=1", "--", "-i",
       "--ip=0,192.0.2.1/24", "--ip=1,192.0.2.129/25")


def own(build, work):
    """A terminal with the prompt of a device with two null ports."""
    return Terminal(work, str(build / "uroce"), *OWN)


def completion(build, work):
    """TAB completes words, values and short words; ? keeps the line"""
    with own(build, work) as terminal:
        terminal.says("uroce>")
        terminal.types("sh", "Tab", "po", "Tab", "su", "Tab")
        terminal.says("uroce> show port summary")
        terminal.types("Tab", "Tab")
        terminal.shows("values")
        terminal.types("0", "Enter")
        terminal.shows("summary")
        terminal.types("C-l")
        terminal.types("show port ?")
        terminal.shows("question")


def mistakes(build, work):
    """A mistake has three lines, with a mark below the word"""
    with own(build, work) as terminal:
        terminal.says("uroce>")
        terminal.types("C-l", "show prot stats 0", "Enter")
        terminal.shows("mistake")
        terminal.types("C-l", "sh po s 0", "Enter")
        terminal.shows("ambiguous")
        terminal.types("C-l", "show port stats 7", "Enter")
        terminal.shows("refused")


def history(build, work):
    """The history has its keys, and the next session has the history"""
    with own(build, work) as terminal:
        terminal.says("uroce>")
        terminal.types("C-l", "show port summary 1", "Enter")
        terminal.says("net_null1")
        terminal.types("show gid", "Enter")
        terminal.says("uroce0/2")
        terminal.types("C-l", "Up", "Up", "Enter")
        terminal.shows("history")
        terminal.types("quit", "Enter")
        terminal.says("Bye...")
    with own(build, work) as terminal:
        terminal.says("uroce>")
        terminal.types("C-r", "gid")
        terminal.says("show gid")
        terminal.types("Enter")
        terminal.says("uroce0/2")


def pager(build, work):
    """A long answer stops after a screenful, and goes on as the keys say"""
    with own(build, work) as terminal:
        terminal.says("uroce>")
        terminal.types("C-l", "show errors", "Enter")
        terminal.shows("pager")
        terminal.types("Enter", "Enter", "Enter")
        terminal.until(lambda screen: screen[-1].startswith("-- more --")
                       and not screen[0].startswith("Device"), "three lines more")
        terminal.types("q")
        terminal.until(lambda screen: screen[-1] == "uroce>", "the prompt")
        terminal.types("C-l", "show errors", "Enter")
        terminal.says("-- more --")
        terminal.types("Space")
        terminal.says("rx_not_linear")


def habits(build, work):
    """testpmd's session by habit: ports, their statistics, quit"""
    with own(build, work) as terminal:
        terminal.says("uroce>")
        terminal.types("C-l", "show port info all", "Enter")
        terminal.says("-- more --")
        terminal.types("a")
        terminal.says("IP address: 192.0.2.129")
        terminal.types("C-l", "show port stats all", "Enter")
        terminal.shows("stats")
        terminal.types("C-l", "clear port stats all", "Enter")
        # Keys that come while a command runs may be lost.
        terminal.until(lambda screen: screen[0].endswith(" all") and screen[-1] == "uroce>",
                       "the next prompt")
        terminal.types("quit", "Enter")
        terminal.says("Bye...")
        terminal.says("ended with 0")


def forwarding(build, work):
    """testpmd's session by habit: start tx_first, statistics while it forwards, stop, quit"""
    rings = ("--no-huge", "-m", "64", "--vdev=net_ring0", "--vdev=net_ring1", "--", "-i")
    with Terminal(work, str(build / "uroce"), *rings) as terminal:
        terminal.says("uroce>")
        terminal.types("C-l", "show port info all", "Enter")
        terminal.says("-- more --")
        terminal.types("q")
        terminal.until(lambda screen: screen[-1] == "uroce>", "the prompt")
        terminal.types("C-l", "start tx_first", "Enter")
        terminal.says("io packet forwarding started")
        terminal.types("C-l", "show port stats all", "Enter")
        terminal.until(lambda screen: all(packets > 100 for packets in received(screen))
                       and len(received(screen)) == 2 and screen[-1] == "uroce>",
                       "ports that receive what they have sent")
        terminal.types("C-l", "stop", "Enter")
        terminal.shows("stop")
        [*ports, both] = received(terminal.screen())
        assert both == sum(ports), ports
        terminal.types("C-l", "stop", "Enter")
        terminal.shows("stopped")
        terminal.types("quit", "Enter")
        terminal.says("Bye...")


def received(screen):
    """The numbers of received packets on a screen."""
    found = (re.search(r"RX-packets: +(\d+)", line) for line in screen)
    return [int(match[1]) for match in found if match]


SESSIONS = (completion, mistakes, history, pager, habits, forwarding)
