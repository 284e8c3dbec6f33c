"""How the site is made of these pages: `python3 tools/docs.py`."""

import os
import re
import sys
from pathlib import Path

from docutils import nodes
from pygments.lexers import TextLexer
from sphinx.highlighting import lexers
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

project = "aotcuda"
copyright = "the aotcuda authors"  # noqa: A001 (Sphinx's name for it)
release = re.search(r'__version__ = "(.*)"', (ROOT / "aotcuda" / "version.py").read_text())[1]
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_llms_txt",
]
# Other projects' inventories are on the network, which a build that is to give the same pages must not need.
if os.environ.get("AOTCUDA_DOCS_INTERSPHINX") == "1":
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "numba-cuda": ("https://nvidia.github.io/numba-cuda", None),
    }

for plain in ("layers", "builder-layers"):  # blocks that tests read
    lexers[plain] = TextLexer()
highlight_language = "text"  # blocks without a language are commands, files and messages
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
default_role = "code"  # what stands between single backticks in a docstring

autodoc_mock_imports = ["jax", "numpy", "torch", "tvm_ffi"]  # what the modules for them import
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True

# `tools/docs.py --links`. Hosts refuse who asks too often, and answer the next day: nothing of that is a dead link.
linkcheck_retries = 3
linkcheck_timeout = 30
linkcheck_rate_limit_timeout = 60
linkcheck_report_timeouts_as_broken = False

html_theme = "furo"
html_title = f"aotcuda {release}"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#3f6f00", "color-brand-content": "#3f6f00"},
    "dark_css_variables": {"color-brand-primary": "#9bd14b", "color-brand-content": "#9bd14b"},
}
copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True


class InlinePictures(SphinxTransform):
    """Puts our own drawings into the page itself, where they take the ink and the paper of its theme, light or dark."""

    default_priority = 500

    def apply(self, **_: object) -> None:
        """Replace each image of the folder of pictures."""
        for image in list(self.document.findall(nodes.image)):
            path = (Path(self.env.doc2path(self.env.docname)).parent / image["uri"]).resolve()
            if path.parent == ROOT / "docs" / "pictures":
                self.env.note_dependency(str(path))
                text = path.read_text(encoding="utf-8")
                image.replace_self(nodes.raw("", f'<span class="picture">{text}</span>', format="html"))


class MarkSentences(SphinxTransform):
    """Marks the columns of tables that hold sentences, for the style sheet: these need room, where names need none."""

    default_priority = 500

    def apply(self, **_: object) -> None:
        """Give each cell of such a column the class `sentences`."""
        for table in self.document.findall(nodes.tgroup):
            rows = [list(row.children) for row in table.findall(nodes.row)]
            for column in zip(*rows, strict=True):
                if max(len(cell.astext()) for cell in column) > 60:  # as many as two lines of a phone have
                    for cell in column:
                        cell["classes"].append("sentences")


def break_lines_well(_: object, _page: str, _template: str, context: dict[str, object], _tree: object) -> None:
    """Let long paths in tables break behind a slash or an underscore, not within a word; and options nowhere."""
    long = re.compile(r"(?<=[>\s])[\w./*\[\]=-]{16,}(?=[<\s])")

    def let_break(cell: re.Match[str]) -> str:
        return long.sub(lambda name: re.sub(r"(?<=[/_])(?=\w\w)", "<wbr>", name[0]), cell[0])

    if isinstance(body := context.get("body"), str):
        body = body.replace('<span class="pre">-', '<span class="pre option">-')
        context["body"] = re.sub(r"<td.*?</td>", let_break, body, flags=re.DOTALL)


def show_unreleased(_: object, page: str, source: list[str]) -> None:
    """Put what is not released yet into the list of changes: the files that the next release takes into CHANGELOG."""
    fragments = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "changes").glob("*.*.md"))]
    if page == "changes" and fragments:
        text = "".join(fragments).replace("](docs/", "](")
        source[0] = re.sub("<!-- what is not .* -->", lambda _: f"## Not released yet\n\n{text}", source[0])


def setup(app: object) -> None:
    """Connect the functions above; Sphinx calls this."""
    app.connect("source-read", show_unreleased)
    app.connect("html-page-context", break_lines_well)
    app.add_transform(InlinePictures)
    app.add_transform(MarkSentences)
    app.add_css_file("site.css")
    app.add_js_file("site.js")


html_static_path = ["_static"]
llms_txt_summary = (
    "aotcuda compiles GPU kernels of Numba, Triton, cuTile and CUDA C++ when a wheel is built. Its users need the "
    "NVIDIA driver, and no compiler."
)
