import { LabIcon } from '@jupyterlab/ui-components';

/** One cell, many workers: a square that goes out to three. */
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <rect x="2" y="8.5" width="7" height="7" rx="1.5"/>
    <rect x="17" y="2" width="5" height="5" rx="1"/>
    <rect x="17" y="9.5" width="5" height="5" rx="1"/>
    <rect x="17" y="17" width="5" height="5" rx="1"/>
    <path d="M9 11.25h8v1.5H9zM12.25 3.75H17v1.5h-3.25v13.5H17v1.5h-4.75z"/>
  </g>
</svg>`;

export const ddlIcon = new LabIcon({ name: 'jupyter-ddl:icon', svgstr: SVG });
