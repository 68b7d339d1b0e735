"""A server is waited for until it listens, and not longer than it lives."""

import subprocess
import sys
import unittest

import network
import unmodified

LISTENS = "import socket, sys; socket.create_server(('127.0.0.1', int(sys.argv[1]))).accept()"
ENDS = "import sys; sys.exit('no device')"


def start(program, port):
    """A server of a few words."""
    return subprocess.Popen([sys.executable, "-c", program, str(port)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Waiting(unittest.TestCase):
    """What `unmodified.await_listening` does."""

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
