"""What the site needs besides docs/: the pages at the top of the repository, links to sources.

Pages are written for readers of the repository, where README.md links to docs/api.md and a page of
docs/ to ../configs. On the site the former becomes a page like the others, and links that leave
docs/ lead to the repository. A link to a file that does not exist ends the build.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# Pages of the site by the file at the top of the repository that they are.
TOP_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
SOURCES = {page: source for source, page in TOP_PAGES.items()}
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the top of the repository."""
    for source, page in TOP_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the page's links between files of the repository into links of the site."""
    del files
    source = SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = FENCED.split(markdown)
    parts[::2] = [
        LINK.sub(lambda link: _link(link, source, page.file.src_uri, config.repo_url or ""), part)
        for part in parts[::2]
    ]
    return "".join(parts)


def _link(link: re.Match[str], source: str, page: str, repository: str) -> str:
    target, anchor = link[1], link[2] or ""
    if re.match(r"[a-z]+:", target):
        return link[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if not (ROOT / path).exists():
        raise PluginError(f"{source} links to {target}, which does not exist")
    if path in TOP_PAGES or path.startswith("docs/"):
        target = TOP_PAGES.get(path, path.removeprefix("docs/"))
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{anchor})"
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"]({repository}/{kind}/main/{path}{anchor})"
