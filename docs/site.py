"""What the site needs beside the pages of docs/ (a hook of mkdocs, named in mkdocs.yml).

Pages outside of docs/ become pages of the site: README.md is its home. Other files that a page links to (tests, records, recipes) come along as
plain text, so that every link of the repository leads somewhere on the site too, and `mkdocs build --strict` can check it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {  # files of the repository that are pages of the site under another name
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
INSTEAD = {"docs/README.md": "index.md"}  # the repository's index of pages: on the site, the navigation has it
SHOWN = {".svg", ".png", ".json", ".ipynb", ".txt"}  # that browsers show or save rightly under their own names
LINK = re.compile(
    r"(?P<before>\]\(|<img[^>]*? src=\"|<source[^>]*? srcset=\")(?P<target>[^)\s\"#]+)(?P<after>#[^)\s\"]*)?(?=[)\"])"
)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)


# -- links ------------------------------------------------------------------------------------------------------------


def repository_path(uri: str) -> str:
    """The file in the repository that a page of the site was made from."""
    return next((path for path, page in PAGES.items() if page == uri), f"docs/{uri}")


def site_path(path: str) -> str | None:
    """Where a file of the repository is on the site; None if it is not there, or is a folder."""
    if path in PAGES or path in INSTEAD:
        return PAGES.get(path) or INSTEAD[path]
    file = ROOT / path
    if not file.is_file() or not file.resolve().is_relative_to(ROOT):
        return None
    if path.startswith("docs/") and file.suffix in {".md", *SHOWN} - {".txt"}:
        return path.removeprefix("docs/")
    return f"source/{path}" if file.suffix in SHOWN else f"source/{path}.txt"


def targets(text: str, uri: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each link of a page to a file or folder of the repository, and its path there. Code has none."""
    folder = posixpath.dirname(repository_path(uri))
    code = [match.span() for match in FENCE.finditer(text)]
    for match in LINK.finditer(text):
        if ":" in match["target"] or any(start <= match.start() < end for start, end in code):
            continue
        path = posixpath.normpath(posixpath.join(folder, match["target"]))
        if (ROOT / path).exists():
            yield match, path


def with_links_of_the_site(text: str, uri: str) -> str:
    """A page whose links lead to pages and files of the site. A link to a folder is left as words."""
    pieces, end = [], 0
    for match, path in targets(text, uri):
        place = site_path(path)
        if place is None:
            words = text.rfind("[", end, match.start())
            pieces += [text[end:words], text[words + 1 : match.start()]]
            end = match.end() + 1
            continue
        relative = posixpath.relpath(place, posixpath.dirname(uri) or ".")
        pieces += [text[end : match.start()], match["before"], relative, match["after"] or ""]
        end = match.end()
    return "".join([*pieces, text[end:]])


# -- the hook ---------------------------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> None:
    """Anchors are made as GitHub makes them, so that one link fits both."""
    from pymdownx.slugs import slugify

    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    for file in [*PAGES, "tempo_core", "tempo_rl", "tempo_llm"]:
        config.watch.append(os.fspath(ROOT / file))


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the pages from outside of docs/, and the files that pages link to."""
    from mkdocs.structure.files import File, InclusionLevel

    for path, uri in PAGES.items():
        if (ROOT / path).is_file():
            text = (ROOT / path).read_text(encoding="utf-8")
            files.append(File.generated(config, uri, content=text, inclusion=InclusionLevel.INCLUDED))
    for page in [
        file for file in files.documentation_pages() if file.src_uri not in INSTEAD.values() or file.src_uri == "index.md"
    ]:
        for _, path in targets(page.content_string, page.src_uri):
            place = site_path(path)
            if place is not None and place.startswith("source/") and files.get_file_from_path(place) is None:
                copy = File.generated(config, place, abs_src_path=os.fspath(ROOT / path), inclusion=InclusionLevel.INCLUDED)
                files.append(copy)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Links as on the site; Markdown inside of `<details>`, as GitHub reads it. The home has no pages beside it."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    return with_links_of_the_site(markdown, page.file.src_uri).replace("<details>", '<details markdown="1">')
