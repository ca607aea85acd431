"""Reports in headless Chromium: they load without a word, and what is to be used works."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from placer.report import write_report
from tests.report.conftest import put_model
from tests.report.test_onboarding_report import summary_of_three

Chrome = webdriver.Chrome
READY = "return [...document.querySelectorAll('.figure')].every(f => f.dataset.ready)"
RANGES = """
const layout = document.getElementById('figure-graph').layout;
return [...layout.xaxis.range, ...layout.yaxis.range]
"""

LABELS = "return [...document.querySelectorAll('svg.labels text')].map(text => text.textContent)"
# What plotly tells of a click on the node of this name.
CLICK = """
const plot = document.getElementById('figure-graph');
const data = plot.data.find(t => t.visible !== false && (t.ids || []).includes(arguments[0]));
plot.emit('plotly_click', { points: [{ data, pointNumber: data.ids.indexOf(arguments[0]) }] });
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chrome]:
    browser, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if browser is None or driver is None:
        pytest.skip("needs chromium and chromedriver on PATH (Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1400,1000")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield started
    started.quit()


def shown(chromium: Chrome, page: Path) -> Chrome:
    """Open ``page`` from its file; its figures are drawn."""
    chromium.get(page.as_uri())
    WebDriverWait(chromium, 30).until(lambda browser: browser.execute_script(READY))
    return chromium


def graph(browser: Chrome) -> WebElement:
    found = browser.find_element(By.ID, "figure-graph")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    return found


def visible_rows(browser: Chrome, table: str) -> list[str]:
    rows = browser.find_elements(By.CSS_SELECTOR, f"#{table} tbody tr")
    return [row.text for row in rows if row.is_displayed()]


@pytest.mark.parametrize("run", ["measured", "estimated", "missed"])
def test_a_report_loads_without_errors_and_without_the_network(
    chromium: Chrome, run: str, request: pytest.FixtureRequest
):
    browser = shown(chromium, request.getfixturevalue(run) / "report.html")
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    drawn = browser.find_elements(By.CSS_SELECTOR, ".figure .main-svg")
    assert len(drawn) >= 2 * len(browser.find_elements(By.CLASS_NAME, "figure")) > 0


@pytest.mark.parametrize("width", [1400, 800, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_window_in_light_and_dark(
    chromium: Chrome, measured: Path, width: int, scheme: str
):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        browser = shown(chromium, measured / "report.html")
        across = "return document.documentElement.scrollWidth"
        assert browser.execute_script(across) <= width
        page, paper = (
            browser.execute_script(script)
            for script in (
                "return getComputedStyle(document.querySelector('section')).backgroundColor",
                "return document.getElementById('figure-trials').layout.paper_bgcolor",
            )
        )
        assert (page, paper) == {
            "light": ("rgb(255, 255, 255)", "#ffffff"),
            "dark": ("rgb(24, 32, 41)", "#182029"),
        }[scheme]
    finally:
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_filters_of_the_plan_hide_rows(chromium: Chrome, measured: Path):
    browser = shown(chromium, measured / "report.html")
    everything = visible_rows(browser, "plan")
    box = browser.find_element(By.CSS_SELECTOR, "input[data-filters=plan]")
    box.send_keys("maxpool")
    found = visible_rows(browser, "plan")
    assert 0 < len(found) < len(everything)
    assert all("maxpool" in row.lower() for row in found)
    counted = browser.find_element(By.ID, "plan-count").text
    assert counted == f"{len(found)} of {len(everything)}"
    box.clear()
    box.send_keys(" ")
    kind = browser.find_element(By.CSS_SELECTOR, "select[data-filters=plan][data-key=kind]")
    Select(kind).select_by_visible_text("converting")
    assert 0 < len(visible_rows(browser, "plan")) < len(everything)


def test_the_wheel_zooms_and_a_button_shows_the_whole_graph(chromium: Chrome, measured: Path):
    browser = shown(chromium, measured / "report.html")
    before = browser.execute_script(RANGES)
    origin = ScrollOrigin.from_element(graph(browser))
    ActionChains(browser).scroll_from_origin(origin, 0, -300).perform()
    WebDriverWait(browser, 10).until(lambda b: b.execute_script(RANGES) != before)
    left, right, bottom, top = browser.execute_script(RANGES)
    assert right - left < before[1] - before[0]
    assert bottom - top < before[2] - before[3]
    browser.find_element(By.ID, "graph-home").click()
    WebDriverWait(browser, 10).until(lambda b: b.execute_script(RANGES) == before)


def test_searching_finds_a_node_and_goes_there(chromium: Chrome, measured: Path):
    browser = shown(chromium, measured / "report.html")
    graph(browser)
    before = browser.execute_script(RANGES)
    box = browser.find_element(By.ID, "graph-search")
    box.send_keys("/head/Gemm")
    assert browser.find_element(By.ID, "graph-count").text == "1 found"
    box.send_keys(Keys.ENTER)
    WebDriverWait(browser, 10).until(lambda b: b.execute_script(RANGES) != before)
    left, right, bottom, top = browser.execute_script(RANGES)
    x, y = browser.execute_script(
        "const ring = document.getElementById('figure-graph').data.at(-1);"
        "return [ring.x[0], ring.y[0]]"
    )
    assert left < x < right
    assert top < y < bottom


@pytest.mark.parametrize("width", [1400, 800, 390])
def test_a_node_tells_its_tensors_ranges_and_attributes(
    chromium: Chrome, measured: Path, width: int
):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        browser = shown(chromium, measured / "report.html")
        graph(browser)
        panel = browser.find_element(By.ID, "graph-node")
        assert not panel.is_displayed()
        browser.execute_script(CLICK, "/head/Gemm")
        assert panel.find_element(By.TAG_NAME, "h3").text == "/head/Gemm"
        terms = [found.text for found in panel.find_elements(By.TAG_NAME, "dt")]
        assert terms.count("input") == 3
        assert terms.count("output") == 1
        assert {"operator", "layer", "attributes"} <= set(terms)
        assert "float 1x128" in panel.text
        assert "transB = 1" in panel.text
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        panel.find_element(By.TAG_NAME, "button").click()
        assert not panel.is_displayed()
    finally:
        chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_names_stand_where_there_is_room_and_a_map_leads_elsewhere(
    chromium: Chrome, measured: Path
):
    browser = shown(chromium, measured / "report.html")
    graph(browser)
    whole = browser.execute_script(LABELS)
    assert "Gemm head" in whole
    assert "Conv" in whole  # Its name would lie over another node.
    minimap = browser.find_element(By.ID, "graph-map")
    assert not minimap.is_displayed()
    browser.find_element(By.ID, "graph-search").send_keys("/head/Gemm", Keys.ENTER)
    WebDriverWait(browser, 10).until(lambda _: minimap.is_displayed())
    before = browser.execute_script(RANGES)
    ActionChains(browser).move_to_element_with_offset(minimap, -60, -40).click().perform()
    left, right, bottom, top = browser.execute_script(RANGES)
    assert left < before[0]
    assert (right - left, bottom - top) == pytest.approx(
        (before[1] - before[0], before[2] - before[3])
    )


def test_a_node_called_as_the_output_that_it_writes_keeps_its_operator(
    chromium: Chrome, measured: Path, tmp_path: Path
):
    folder = shutil.copytree(measured, tmp_path / "run")
    proto = onnx.load(folder / "optimized.onnx")
    (gemm,) = (node for node in proto.graph.node if node.op_type == "Gemm")
    gemm.name = proto.graph.output[0].name
    put_model(folder, proto)
    browser = shown(chromium, write_report(folder))
    graph(browser)
    assert {"Gemm logits", "logits"} <= set(browser.execute_script(LABELS))
    browser.find_element(By.ID, "graph-search").send_keys("gemm")
    assert browser.find_element(By.ID, "graph-count").text == "1 found"
    panel = browser.find_element(By.ID, "graph-node")
    browser.execute_script(CLICK, "logits")
    assert "transB = 1" in panel.text
    terminal = "plot.data.find(t => t.name === 'graph input or output')"
    browser.execute_script(
        "const plot = document.getElementById('figure-graph');"
        f"const data = {terminal};"
        "plot.emit('plotly_click', { points: [{ data, pointNumber: data.ids.length - 1 }] });"
    )
    assert panel.find_element(By.TAG_NAME, "h3").text == "logits"
    assert "transB" not in panel.text


def test_buttons_choose_the_plan_that_is_drawn(chromium: Chrome, measured: Path):
    browser = shown(chromium, measured / "report.html")
    graph(browser)
    browser.find_element(By.CSS_SELECTOR, "button[data-plan=predicted]").click()
    drawn = browser.execute_script(
        "return document.getElementById('figure-graph').data"
        ".filter(t => t.meta && t.visible !== false).map(t => t.meta)"
    )
    assert set(drawn) == {"predicted"}


def test_decisions_are_sorted_by_a_click(chromium: Chrome, estimated: Path):
    browser = shown(chromium, estimated / "report.html")
    head = browser.find_element(By.CSS_SELECTOR, "#decisions th:nth-child(2)")

    def sites() -> list[int]:
        cells = browser.find_elements(By.CSS_SELECTOR, "#decisions td:nth-child(2)")
        return [int(cell.get_attribute("data-value")) for cell in cells]

    head.click()
    assert sites() == sorted(sites(), reverse=True)
    head.click()
    assert sites() == sorted(sites())


def test_an_onboarding_is_filtered_by_state(chromium: Chrome, tmp_path: Path):
    summary_of_three().write(tmp_path / "summary.json")
    browser = shown(chromium, write_report(tmp_path))
    assert browser.get_log("browser") == []
    assert len(visible_rows(browser, "models")) == 3
    state = browser.find_element(By.CSS_SELECTOR, "select[data-filters=models]")
    Select(state).select_by_visible_text("gate not met")
    (row,) = visible_rows(browser, "models")
    assert row.startswith("detector gate not met")
