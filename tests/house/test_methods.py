"""Every method has a page, sits the exam, and stands in the table of the documents."""

import re

import bayesprop as bp

SECTIONS = ("**Choose it**", "**Do not**", "**Cost**", "**How it is tested**", "```python")


def test_every_method_has_a_page_that_says_what_a_page_says(root):
    entries = bp.methods()
    for entry in entries:
        text = (root / entry.page).read_text(encoding="utf-8")
        assert text.startswith(f"# {entry.name}\n"), entry.page
        missing = [section for section in SECTIONS if section not in text.replace("**Do\nnot**", "**Do not**")]
        assert not missing, f"{entry.page}: {missing}"
        assert "**What " in text, entry.page
    pages = {path.stem for path in (root / "docs" / "methods").glob("*.md")} - {"README"}
    assert pages == {entry.name for entry in entries}


def test_the_table_of_the_documents_is_that_of_the_library(root):
    text = (root / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- methods -->\n(.*?)<!-- methods end -->", text, re.DOTALL)
    assert found is not None
    assert found[1] == bp.methods().markdown()


def test_every_method_sits_the_exam(tests):
    """A class that inherits from the suite, and makes the method."""
    sat = set()
    for test in tests:
        if "(MethodSuite)" in test.text:
            sat |= set(re.findall(r"def make\(self\):\n +return (\w+)\(", test.text))
    assert sat >= {entry.name for entry in bp.methods()}
