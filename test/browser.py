"""A headless Chromium driven over its debugging pipe, which needs no driver and no port."""

import base64
import fcntl
import io
import json
import os
from pathlib import Path
import shutil
import subprocess
from typing import Any

from matplotlib import image
import numpy as np
from numpy.typing import NDArray

NAMES = ('chromium', 'chromium-browser', 'google-chrome')
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
MISSING = f'no Chromium: none of {", ".join(NAMES)} is on the PATH (apt install chromium)'
FLAGS = (
    '--headless=new', '--remote-debugging-pipe', '--no-first-run', '--disable-extensions',
    '--no-sandbox',  # tests may run as root in a container; they open only their own file
    '--use-angle=swiftshader', '--enable-unsafe-swiftshader',  # WebGL without a GPU
)  # fmt: skip


class Browser:
    """One tab; commands are those of the DevTools protocol."""

    def __init__(self, profile: Path, *flags: str):
        commands, self._commands = os.pipe()
        answers, answers_of_browser = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4.
        theirs = [fcntl.fcntl(f, fcntl.F_DUPFD, 10) for f in (commands, answers_of_browser)]
        launch = f'exec 3<&{theirs[0]} 4>&{theirs[1]} "$@"'
        self._process = subprocess.Popen(
            ['bash', '-c', launch, 'bash', str(CHROMIUM), *FLAGS, *flags,
             f'--user-data-dir={profile}'],
            pass_fds=theirs, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for descriptor in (commands, answers_of_browser, *theirs):
            os.close(descriptor)
        self._answers = os.fdopen(answers, 'rb')
        self._received = b''
        self._session: dict[str, str] = {}
        self._count = 0
        self.events: list[dict[str, Any]] = []
        tab = self.command('Target.createTarget', url='about:blank')['targetId']
        attached = self.command('Target.attachToTarget', targetId=tab, flatten=True)
        self._session = {'sessionId': attached['sessionId']}
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.command(f'{domain}.enable')

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._answers.close()
        os.close(self._commands)

    def command(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send a command and return its result; events that come first are kept."""
        self._count += 1
        message = {'id': self._count, 'method': method, 'params': parameters, **self._session}
        os.write(self._commands, json.dumps(message).encode() + b'\0')
        while (answer := self._read()).get('id') != self._count:
            self.events.append(answer)
        assert 'error' not in answer, answer
        return answer['result']

    def wait_for(self, method: str) -> None:
        """Return once an event has come since `events` was cleared."""
        while not any(event['method'] == method for event in self.events):
            self.events.append(self._read())

    def _read(self) -> dict[str, Any]:
        while b'\0' not in self._received:
            chunk = self._answers.read1()
            assert chunk, 'Chromium has ended'
            self._received += chunk
        message, self._received = self._received.split(b'\0', 1)
        return json.loads(message)

    def open(self, path: Path, width: int, height: int, *, dark: bool = False) -> None:
        """Show a file at a size of the window; a narrow one is a phone with a touch screen."""
        self.events.clear()
        is_phone = width < 600
        self.command(
            'Emulation.setDeviceMetricsOverride', width=width, height=height, mobile=is_phone,
            deviceScaleFactor=1,
        )  # fmt: skip
        self.command('Emulation.setTouchEmulationEnabled', enabled=is_phone)
        scheme = {'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}
        self.command('Emulation.setEmulatedMedia', features=[scheme])
        self.command('Page.navigate', url=path.as_uri())
        self.wait_for('Page.loadEventFired')

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited if it is a promise."""
        answer = self.command(
            'Runtime.evaluate', expression=expression, awaitPromise=True, returnByValue=True
        )
        assert 'exceptionDetails' not in answer, answer
        return answer['result'].get('value')

    def picture(self, selector: str) -> NDArray[np.uint8]:
        """Return the pixels (height, width, 3) of an element, once pending frames are drawn."""
        self.evaluate(f'document.querySelector({selector!r}).scrollIntoView({{block: "center"}})')
        self.evaluate('new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f)))')
        x, y, width, height = self.box(selector)
        clip = {'x': x, 'y': y, 'width': width, 'height': height, 'scale': 1}
        data = self.command('Page.captureScreenshot', clip=clip, captureBeyondViewport=False)
        pixels = image.imread(io.BytesIO(base64.b64decode(data['data'])))
        return np.rint(255 * pixels[..., :3]).astype(np.uint8)

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Return x, y, width and height of an element on the page."""
        x, y, width, height = self.evaluate(
            f'(() => {{ const b = document.querySelector({selector!r}).getBoundingClientRect();'
            'return [b.x + scrollX, b.y + scrollY, b.width, b.height] })()'
        )
        return x, y, width, height

    def drag(self, selector: str, dx: float, dy: float) -> None:
        """Drag from the middle of an element."""
        self.evaluate(f'document.querySelector({selector!r}).scrollIntoView({{block: "center"}})')
        x, y, width, height = self.box(selector)
        x, y = x + width / 2, y + height / 2 - self.evaluate('scrollY')
        for kind, at in (('Pressed', 0.0), ('Moved', 0.5), ('Moved', 1.0), ('Released', 1.0)):
            self.mouse(f'mouse{kind}', x + at * dx, y + at * dy)

    def mouse(self, kind: str, x: float, y: float, **more: object) -> None:
        """Send one event of the mouse, at a position in the window."""
        self.command(
            'Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left', buttons=1,
            clickCount=1, **more,
        )  # fmt: skip

    def complaints(self) -> list[dict[str, Any]]:
        """Return errors and warnings of the console, and exceptions that nobody caught."""
        kinds = ('Runtime.exceptionThrown', 'Runtime.consoleAPICalled', 'Log.entryAdded')
        return [event for event in self.events if event['method'] in kinds]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for."""
        return [
            event['params']['request']['url'] for event in self.events
            if event['method'] == 'Network.requestWillBeSent'
        ]  # fmt: skip
