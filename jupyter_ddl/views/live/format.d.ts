type Known<T> = T | null | undefined;

export function number(value: Known<number>): string;
export function score(value: Known<number>): string;
export function ticks(values: number[], step: number): string[];
export function count(n: Known<number>): string;
export function counted(n: number, one: string, many?: string): string;
export function capitalized(word: string): string;
export function param(value: unknown, limit?: number): string;
export function params(params: Record<string, unknown>, limit?: number, nShown?: number): string;
export function duration(seconds: Known<number>): string;
export function age(seconds: Known<number>): string;
export function clock(seconds: number): string;
export function bytes(size: Known<number>): string;
export function percent(share: Known<number>): string;
export function rate(perS: Known<number>, noun: string): string;
export function held(hours: number, unit: string): string;
export function money(amount: number, currency: string, rough?: boolean): string;
