/** The lines that follow a run: the extension is loaded where the notebook does not do so. */
export function attachCode(runId: string, sources: readonly string[]): string {
  const isLoaded = sources.some(source => /^\s*%(re)?load_ext\s+jupyter_ddl\b/m.test(source));
  return `${isLoaded ? '' : '%load_ext jupyter_ddl\n'}%runs attach ${runId}`;
}
