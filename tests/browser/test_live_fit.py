"""The live view of a fit in a real JupyterLab: a candidate is stopped, its folds have their log."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.lab_tools import Lab, cell_at, open_notebook, run_cell, take, wait_done

_START = """%load_ext jupyter_ddl
%cluster start -n 2
import time
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GridSearchCV

class Slow(ClassifierMixin, BaseEstimator):
    def __init__(self, wait=0.0):
        self.wait = wait

    def fit(self, X, y):
        print(f"waits for {self.wait} s with {len(X)} rows")
        self.classes_ = np.unique(y)
        time.sleep(self.wait)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])
"""
_FIT = """%%distribute fit --name slow
search = GridSearchCV(Slow(), {"wait": [0.1, 90.0, 1.0]}, cv=4, refit=False)
search.fit(np.zeros((40, 2)), [0, 1] * 20)
search.cv_results_["params"]
"""


def test_a_candidate_is_stopped_and_the_cell_goes_on(lab: Lab, page: Page) -> None:
    page.set_viewport_size({"width": 1200, "height": 1400})
    open_notebook(page, lab, "fit.ipynb", _START, _FIT)
    run_cell(page, 0)
    run_cell(page, 1, wait=False)
    page.wait_for_selector(".ddl-live[data-run]")
    view = page.locator(".ddl-live").first
    view.locator("summary", has_text="Output").click()
    view.get_by_role("combobox", name="Whose output").select_option("trial 0")
    log = view.locator(".ddl-log")
    for fold in range(4):
        expect(log).to_contain_text(f"── fold {fold}")
    expect(log).to_contain_text("waits for 0.1 s with 30 rows")
    stop = view.get_by_role("button", name="Stop trial 1")
    take(view, "cell-fit-light")
    stop.click()
    expect(view.locator(".ddl-counts")).to_contain_text("1 cancelled")
    wait_done(page, 1, 30)
    output = cell_at(page, 1).locator(".jp-Cell-outputArea")
    expect(output).to_contain_text("[{'wait': 0.1}, {'wait': 1.0}]")
    take(cell_at(page, 1), "cell-fit-end-light")
