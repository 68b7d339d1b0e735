"""Tests that waiting for a server ends when it listens, or when it has ended."""

import subprocess
import sys
import unittest

from vm import network
import unmodified

LISTENS = "import socket, sys; socket.create_server(('127.0.0.1', int(sys.argv[1]))).accept()"
ENDS = "import sys; sys.exit('no device')"


def start(program, port):
    """Starts a small server."""
    return subprocess.Popen([sys.executable, "-c", program, str(port)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Waiting(unittest.TestCase):
    """Tests of `unmodified.await_listening`."""

    def test_a_server_is_waited_for_until_it_listens(self):
        port = unmodified.free_port()
        with start(LISTENS, port) as server:
            unmodified.await_listening(server, port)
            self.assertTrue(network.listening(port))
            server.kill()

    def test_what_a_server_said_before_it_ended_is_told(self):
        port = unmodified.free_port()
        with start(ENDS, port) as server:
            with self.assertRaisesRegex(RuntimeError, "(?s)status 1.*no device"):
                unmodified.await_listening(server, port)


if __name__ == "__main__":
    unittest.main()
