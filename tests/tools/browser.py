"""A page in headless Chromium, driven over its debugging pipe with real keys and a real pointer. By Python's standard library."""
import base64
import json
import os
import subprocess
import time


class Browser:
    """One page. `problems`: errors and refusals that the browser has reported; `posts`: bodies of requests that the page sent."""

    def __init__(self, folder, width=1280, height=900):
        ours, theirs = os.pipe(), os.pipe()
        self.target, self.source = os.fdopen(ours[1], "wb", 0), os.fdopen(theirs[0], "rb")

        def connect():
            first, second = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(first, 3)
            os.dup2(second, 4)
        self.process = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={folder}",
             f"--window-size={width},{height}", "about:blank"], preexec_fn=connect, pass_fds=(3, 4), stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.number, self.session, self.rest, self.problems, self.posts = 0, None, b"", [], []
        pages = [each for each in self.ask("Target.getTargets")["targetInfos"] if each["type"] == "page"]
        self.session = self.ask("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.ask(domain + ".enable")

    def read(self):
        while b"\0" not in self.rest:
            part = os.read(self.source.fileno(), 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **parameters):
        self.number += 1
        body = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            body["sessionId"] = self.session
        self.target.write(json.dumps(body).encode() + b"\0")
        while True:
            said = self.read()
            if said.get("id") == self.number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]
            self.hear(said.get("method"), said.get("params", {}))

    def hear(self, event, what):
        if event == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(what["exceptionDetails"])[:400])
        elif event == "Log.entryAdded" and what["entry"]["source"] != "network":
            self.problems.append(what["entry"]["text"])
        elif event == "Network.requestWillBeSent" and "postData" in what["request"]:
            self.posts.append(json.loads(what["request"]["postData"]))

    def open(self, address):
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def value(self, expression):
        said = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(f"{expression}: {said['exceptionDetails']['exception'].get('description')}")
        return said["result"].get("value")

    def wait(self, expression, seconds=60):
        end = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > end:
                raise RuntimeError(f"never: {expression}\n{self.value('document.body.innerText')}")
            time.sleep(0.03)

    def type(self, text):
        self.ask("Input.insertText", text=text)

    def press(self, key, shift=False):
        """A key by its name, as the keyboard sends it."""
        code = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, "Tab": 9}[key]
        what = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **what, **({"text": "\r"} if key == "Enter" else {}))
        self.ask("Input.dispatchKeyEvent", type="keyUp", **what)

    def point(self, expression):
        """Moves the pointer to the middle of an element's first box. Returns the place."""
        self.value(f"({expression}).scrollIntoView({{block: 'center'}})")
        box = self.value(f"(b => [b.x + b.width / 2, b.y + b.height / 2])(({expression}).getClientRects()[0])")
        place = {"x": box[0], "y": box[1]}
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", **place)
        return place

    def click(self, expression):
        place = self.point(expression)
        for kind in "mousePressed", "mouseReleased":
            self.ask("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def fill(self, expression, text):
        """Replaces the text of a field."""
        self.value(f"(e => {{ e.focus(); e.select(); }})({expression})")
        if text == "":
            self.value(f"(e => {{ e.value = ''; e.dispatchEvent(new Event('input')); }})({expression})")
        else:
            self.type(text)

    def resize(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def scheme(self, name):
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait()
