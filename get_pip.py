"""Install pip from the package index into the virtual environment of the Python that runs this.

Above: ./run, if Python has no ensurepip (Debian and Ubuntu without python3-venv). Below: the standard library. It reads
the parts of pip's configuration about package indexes and trust, and downloads one wheel. It is not an installer, on
purpose: the pip inside the wheel installs itself.

If it fails, the last line on stderr says why.
"""

import base64
import configparser
import hashlib
import html.parser
import http.client
import json
import netrc
import os
import re
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import NamedTuple

PYPI = "https://pypi.org/simple"
DEFAULT_TIMEOUT_S = 15.0
INSTALL_TIMEOUT_S = 300
MAX_PAGE_BYTES = 16 << 20
MAX_WHEEL_BYTES = 64 << 20
FORMATS = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.1, text/html;q=0.01"
# Only releases: `pip-26.3b1-...` does not match.
WHEEL = re.compile(r"pip-(\d+(?:\.\d+)*)-(?:py2\.)?py3-none-any\.whl")
TRUSTED_HASHES = ("sha256", "sha384", "sha512")
FAILURES = (OSError, http.client.HTTPException, ValueError)
"""Errors caused by an unreachable or misbehaving server."""


class NoPip(Exception):
    """A message for the user."""


class Wheel(NamedTuple):
    version: tuple[int, ...]
    url: str
    algorithm: str
    digest: str


# pip's configuration ----------------------------------------------------------------------------------------------


def configuration(environ: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return pip's options by their long names: from its files, in pip's order, then from PIP_... variables."""
    found: dict[str, str] = {}
    parser = configparser.RawConfigParser()
    parser.read(configuration_files(environ, prefix))
    for section in ("global", "install"):
        if parser.has_section(section):
            found.update((option_name(key), value) for key, value in parser.items(section) if value)
    for key, value in environ.items():
        if key.startswith("PIP_") and value:
            found[option_name(key[len("PIP_") :])] = value
    return found


def configuration_files(environ: Mapping[str, str], prefix: str) -> list[str]:
    """Return the files in order; later ones take precedence."""
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    home = environ.get("HOME") or os.path.expanduser("~")
    shared = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    files = [os.path.join(folder, "pip", "pip.conf") for folder in shared] + ["/etc/pip.conf"]
    if not os.path.exists(chosen):
        own = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        files += [os.path.join(home, ".pip", "pip.conf"), os.path.join(own, "pip", "pip.conf")]
    return [*files, os.path.join(prefix, "pip.conf"), *filter(None, [chosen])]


def option_name(key: str) -> str:
    name = key.lower().replace("_", "-").removeprefix("--")
    return "timeout" if name == "default-timeout" else name


def is_on(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() in ("1", "on", "true", "t", "yes", "y")


def indexes(options: Mapping[str, str]) -> list[str]:
    if is_on(options, "no-index"):
        return []
    return [options.get("index-url", PYPI), *options.get("extra-index-url", "").split()]


# Downloading ------------------------------------------------------------------------------------------------------


class Downloader:
    """Downloads with the proxies, certificates and passwords that pip would use."""

    def __init__(self, options: Mapping[str, str], environ: Mapping[str, str]) -> None:
        self._timeout_s = float(options.get("timeout", DEFAULT_TIMEOUT_S))
        self._trusted = set(options.get("trusted-host", "").split())
        self._passwords: dict[str, str] = {}
        proxy = options.get("proxy")
        self._proxies = urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else None)
        bundle = options.get("cert") or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
        self._checked = context_of(os.path.expanduser(bundle) if bundle else None)
        # Only for hosts in pip's trusted-host.
        self._unchecked = ssl._create_unverified_context()  # noqa: S323
        if certificate := options.get("client-cert"):
            self._checked.load_cert_chain(os.path.expanduser(certificate))

    def read(self, url: str, limit: int, accept: str = "*/*") -> tuple[bytes, str, str]:
        """Return the body, its content type and the final URL."""
        url, password = self._without_password(url)
        parts = urllib.parse.urlsplit(url)
        trusted = parts.hostname in self._trusted or parts.netloc in self._trusted
        request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": "perdure-get-pip"})  # noqa: S310
        if password:
            # Not sent to the target of a redirect.
            request.add_unredirected_header("Authorization", "Basic " + base64.b64encode(password.encode()).decode())
        secure = urllib.request.HTTPSHandler(context=self._unchecked if trusted else self._checked)
        opener = urllib.request.build_opener(self._proxies, secure)
        with opener.open(request, timeout=self._timeout_s) as answer:
            body = answer.read(limit + 1)
            if len(body) > limit:
                raise NoPip(f"{url} is larger than {limit} bytes.")
            return body, answer.headers.get_content_type(), answer.geturl()

    def refuses(self, url: str) -> bool:
        """Return whether the URL is unencrypted and not on this machine. Like pip, don't trust such an index."""
        parts = urllib.parse.urlsplit(url)
        local = parts.hostname in ("localhost", "::1") or (parts.hostname or "").startswith("127.")
        return parts.scheme == "http" and not local and not {parts.hostname, parts.netloc} & self._trusted

    def _without_password(self, url: str) -> tuple[str, str]:
        """Split the password from the URL. It is used for every URL of the same host."""
        parts = urllib.parse.urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        if at:
            self._passwords[host] = urllib.parse.unquote(user)
        elif host and host not in self._passwords:
            self._passwords[host] = password_of(parts.hostname or "")
        return urllib.parse.urlunsplit(parts._replace(netloc=host)), self._passwords.get(host, "")


def context_of(bundle: str | None) -> ssl.SSLContext:
    """Return a context that trusts the certificates in this file or folder, else those of the system."""
    if bundle and os.path.isdir(bundle):
        return ssl.create_default_context(capath=bundle)
    return ssl.create_default_context(cafile=bundle)


def password_of(host: str) -> str:
    """Return user:password from ~/.netrc."""
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return ""
    return f"{found[0]}:{found[2]}" if found else ""


# Which wheel ------------------------------------------------------------------------------------------------------


class Links(html.parser.HTMLParser):
    """The links on a page, each with its attributes."""

    def __init__(self, text: str, base: str) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self._base = base
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag == "base" and "href" in given:
            self._base = urllib.parse.urljoin(self._base, given["href"])
        if tag == "a" and "href" in given:
            self.found.append({**given, "href": urllib.parse.urljoin(self._base, given["href"])})


def wheels_of_html(text: str, base: str) -> Iterator[Wheel]:
    for link in Links(text, base).found:
        url, fragment = urllib.parse.urldefrag(link["href"])
        name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
        if "data-yanked" not in link and suits_this_python(link.get("data-requires-python", "")):
            yield from wheel(name, url, *fragment.partition("=")[::2])


def wheels_of_json(body: bytes, base: str) -> Iterator[Wheel]:
    for file in json.loads(body)["files"]:
        algorithm = next((name for name in TRUSTED_HASHES if name in file["hashes"]), "")
        if not file.get("yanked") and suits_this_python(file.get("requires-python") or ""):
            url = urllib.parse.urljoin(base, file["url"])
            yield from wheel(file["filename"], url, algorithm, file["hashes"].get(algorithm, ""))


def wheels_of_folder(folder: str) -> Iterator[Wheel]:
    for name in os.listdir(folder):
        yield from wheel(name, "file://" + urllib.parse.quote(os.path.abspath(os.path.join(folder, name))), "", "")


def wheel(name: str, url: str, algorithm: str, digest: str) -> Iterator[Wheel]:
    """Yield the wheel if it is pip and its hash can be checked. Files on this machine are trusted."""
    match = WHEEL.fullmatch(name)
    if match and (algorithm in TRUSTED_HASHES or url.startswith("file:")):
        yield Wheel(tuple(int(part) for part in match[1].split(".")), url, algorithm, digest)


def suits_this_python(requires: str) -> bool:
    """Check requires-python. Reads only the bounds: pip excludes no version in between that could run this."""
    for sign, version in re.findall(r"(>=|<)\s*(\d+(?:\.\d+)*)", requires):
        bound = tuple(int(part) for part in version.split("."))
        if (sys.version_info[: len(bound)] >= bound) != (sign == ">="):
            return False
    return True


def wheels_at(place: str, downloader: Downloader) -> list[Wheel]:
    """Return the wheels on an index page, on a page of links or in a folder."""
    if "://" not in place:
        place = "file://" + urllib.parse.quote(os.path.abspath(os.path.expanduser(place)))
    if place.startswith("file:"):
        path = urllib.request.url2pathname(urllib.parse.urlsplit(place).path)
        page = os.path.join(path, "index.html")
        if os.path.isdir(path) and not os.path.exists(page):
            return list(wheels_of_folder(path))
        place = "file://" + urllib.parse.quote(page if os.path.isdir(path) else path)
    if downloader.refuses(place):
        raise NoPip("The connection is not encrypted, and the host is not in pip's trusted-host.")
    body, kind, base = downloader.read(place, MAX_PAGE_BYTES, FORMATS)
    if downloader.refuses(base):
        raise NoPip("It redirects to an unencrypted address whose host is not in pip's trusted-host.")
    if kind.endswith("json"):
        return list(wheels_of_json(body, base))
    return list(wheels_of_html(body.decode("utf-8", "replace"), base))


def newest(options: Mapping[str, str], downloader: Downloader) -> Wheel:
    """Return the newest wheel of all places together, like pip does. Places that fail are skipped."""
    places = [index.rstrip("/") + "/pip/" for index in indexes(options)] + options.get("find-links", "").split()
    found: list[Wheel] = []
    for place in places:
        shown = re.sub(r"//[^/@]*@", "//", place)
        try:
            wheels = wheels_at(place, downloader)
            sys.stderr.write("" if wheels else f"{shown}: has no pip with a sha256 for this Python\n")
            found += wheels
        except (NoPip, *FAILURES, KeyError) as error:
            sys.stderr.write(f"{shown}: {error}\n")
    if not found:
        raise NoPip("No package index provided pip." if places else "pip's configuration allows no package index.")
    return max(found)


def install(chosen: Wheel, downloader: Downloader) -> None:
    body, _, _ = downloader.read(chosen.url, MAX_WHEEL_BYTES)
    if chosen.algorithm and hashlib.new(chosen.algorithm, body).hexdigest() != chosen.digest.lower():
        raise NoPip(f"{chosen.url} is not the file that the index describes: its {chosen.algorithm} differs.")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"pip-{'.'.join(map(str, chosen.version))}-py3-none-any.whl")
        with open(path, "wb") as file:
            file.write(body)
        program = [sys.executable, os.path.join(path, "pip"), "--isolated", "--disable-pip-version-check", "install"]
        subprocess.run([*program, "--quiet", "--no-index", "--no-deps", path], check=True, timeout=INSTALL_TIMEOUT_S)


def main() -> None:
    try:
        options = configuration(os.environ, sys.prefix)
        downloader = Downloader(options, os.environ)
        install(newest(options, downloader), downloader)
    except (NoPip, *FAILURES, configparser.Error, subprocess.SubprocessError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
